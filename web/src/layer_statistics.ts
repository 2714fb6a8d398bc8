// Layers under rounding: which suffers, and when, and which bits it had. A heat map of layers and steps, of a run whose lines
// tell of layers.

import * as Plot from "@observablehq/plot";
import type { Table } from "./columns";
import type { Context, Section } from "./context";
import { labelled, select, svgElement } from "./dom";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { grouped, shortNumber, significant } from "./format";
import { RunChooser } from "./run_chooser";
import type { Run } from "./runs";
import { addText, fitted, plotStyle, textWidth, type PlotSvg } from "./svg";

interface Quantity {
  key: string; // of the line, after the layer's name
  label: string;
  text: (value: number) => string;
  suffersLow?: boolean; // where low values are the bad ones
  log?: boolean;
  holds?: boolean; // of the steps from the line before, not of one step
}

const decibels = (value: number) => `${value.toFixed(1)} dB`;
const quantities: Quantity[] = [
  { key: "activation_snr", label: "signal to noise, activations", text: decibels, suffersLow: true },
  { key: "weight_snr", label: "signal to noise, weights", text: decibels, suffersLow: true },
  { key: "error_snr", label: "signal to noise, errors", text: decibels, suffersLow: true },
  { key: "clipped", label: "share of clipped activations", text: (value) => `${(100 * value).toFixed(2)} %` },
  { key: "sensitivity", label: "sensitivity", text: (value) => significant(value, 3), log: true },
  { key: "bits", label: "bits", text: (value) => `${value} bits`, holds: true },
];

interface Cell {
  layer: string;
  step: number;
  value: number;
}

const mostColumns = 240; // more than that a figure cannot show

// Of the steps at which it was measured, evenly, as many as can be shown. Lines of one run may tell of different things.
export function cellsOf(table: Table, key: string, most = mostColumns): Cell[] {
  const steps = table.columns.get("step")!;
  const columns = [...table.columns].filter(([name]) => name.slice(name.lastIndexOf(".") + 1) === key);
  const rows = [...steps.keys()].filter((i) => columns.some(([, values]) => Number.isFinite(values[i])));
  const every = Math.max(1, Math.ceil(rows.length / most));
  return columns.flatMap(([name, values]) => {
    const layer = name.slice(0, name.lastIndexOf("."));
    return rows
      .filter((i, at) => (at + 1) % every === 0 && Number.isFinite(values[i]))
      .map((i) => ({ layer, step: steps[i], value: values[i] }));
  });
}

// Of steps that lie evenly, whenever lines were logged: what the first line from there on tells, up to which it held.
export function cellsHeld(table: Table, key: string, most = 100): Cell[] {
  const told = cellsOf(table, key, Infinity);
  const last = Math.max(0, ...told.map((cell) => cell.step));
  const columns = Math.min(most, last);
  return [...new Set(told.map((cell) => cell.layer))].flatMap((layer) => {
    const lines = told.filter((cell) => cell.layer === layer);
    let next = 0;
    return Array.from({ length: columns }, (_, i) => Math.round(((i + 1) * last) / columns)).flatMap((step) => {
      while (next < lines.length && lines[next].step < step) ++next;
      // fp32, as a delay may have it, has no place among numbers of bits.
      return next < lines.length && lines[next].value > 0 ? [{ layer, step, value: lines[next].value }] : [];
    });
  });
}

const cellsShown = (table: Table, { key, holds }: Quantity): Cell[] => (holds ? cellsHeld(table, key) : cellsOf(table, key));

// What is shown of a run until something is chosen: the first that its lines tell of.
const firstKnown = (table: Table) => quantities.find((quantity) => cellsShown(table, quantity).length > 0);

function addLegend(svg: SVGSVGElement, { label, text }: Quantity, range: [number, number], color: (value: number) => string, log: boolean) {
  const side = 8,
    count = 16;
  const look = { fill: "var(--muted)", size: 11.5 };
  addText(svg, 8, 16, label, { weight: 550 });
  let x = 24 + textWidth(label, { weight: 550 });
  addText(svg, x, 16, text(range[0]), look);
  x += textWidth(text(range[0]), look) + 6;
  for (let i = 0; i < count; ++i) {
    const share = i / (count - 1);
    const value = log ? range[0] * (range[1] / range[0]) ** share : range[0] + (range[1] - range[0]) * share;
    svg.append(svgElement("rect", { x: x + i * side, y: 6, width: side, height: 12, fill: color(value) }));
  }
  addText(svg, x + count * side + 6, 16, text(range[1]), look);
}

function draw(run: Run, cells: Cell[], quantity: Quantity, width: number): Drawing {
  const layers = [...new Set(cells.map((cell) => cell.layer))];
  const steps = [...new Set(cells.map((cell) => cell.step))].sort((a, b) => a - b);
  const values = cells.map((cell) => cell.value);
  const range: [number, number] = [Math.min(...values), Math.max(...values)];
  const log = quantity.log === true && range[0] > 0;
  const names = { size: 11.5 };
  const marginLeft = Math.min(width * 0.36, 14 + Math.max(...layers.map((layer) => textWidth(layer, names))));
  const every = Math.ceil(steps.length / Math.max(2, (width - marginLeft) / 80));
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 76 + layers.length * (layers.length > 40 ? 12 : 19),
    marginLeft,
    marginRight: 16,
    marginTop: 30,
    marginBottom: 42,
    x: {
      type: "band",
      domain: steps,
      padding: 0,
      label: "step",
      labelAnchor: "center",
      labelArrow: "none",
      ticks: steps.filter((_, i) => (i + 1) % every === 0),
      tickFormat: shortNumber,
    },
    y: {
      domain: layers,
      padding: 0.06,
      label: null,
      tickSize: 0,
      tickFormat: (layer: string) => fitted(layer, marginLeft - 12, names),
    },
    color: {
      type: log ? "log" : "linear",
      scheme: "YlOrRd",
      reverse: quantity.suffersLow,
      domain: range[0] === range[1] ? [range[0], range[0] + 1e-9] : range,
    },
    marks: [Plot.cell(cells, { x: "step", y: "layer", fill: "value" })],
  }) as PlotSvg;
  const band = (name: string) =>
    svg.scale(name) as unknown as { apply: (value: number | string) => number; bandwidth: number };
  addLegend(svg, quantity, range, svg.scale("color").apply as unknown as (value: number) => string, log);
  const x = band("x"),
    y = band("y");
  const points = () =>
    cells.map((cell): Point => ({
      x: x.apply(cell.step) + x.bandwidth / 2,
      y: y.apply(cell.layer) + y.bandwidth / 2,
      series: cell.layer,
      lines: () => [cell.layer, `step ${grouped(cell.step)}`, `${quantity.label} ${quantity.text(cell.value)}`, run.name],
    }));
  return { svg, points };
}

// Every look, every layer, every number.
function csv(run: Run, table: Table): string[] {
  const keys = quantities.map(({ key }) => key);
  const layers = new Set([...table.columns.keys()].filter((name) => name.includes(".")).map((name) => name.slice(0, name.lastIndexOf("."))));
  const rows: string[] = [];
  for (let i = 0; i < table.rows; ++i) {
    for (const layer of layers) {
      const values = keys.map((key) => table.columns.get(`${layer}.${key}`)?.[i] ?? NaN);
      rows.push(csvLine([run.name, table.columns.get("step")![i], layer, ...values.map((v) => (Number.isNaN(v) ? "" : v))]));
    }
  }
  return [csvLine(["run", "step", "layer", ...keys]), ...rows];
}

export class LayerStatistics implements Section {
  readonly root: HTMLElement;
  readonly usesLines = true;
  private readonly figure: Figure;
  private readonly chooser = new RunChooser(() => this.update());
  private quantity: Quantity | null = null; // until it is chosen
  private readonly choice: HTMLLabelElement;

  constructor(private readonly context: Context) {
    this.choice = select(
      "Show",
      quantities.map(({ key, label }) => [key, label]),
      quantities[0].key,
      (value) => {
        this.quantity = quantities.find(({ key }) => key === value)!;
        this.figure.update();
      },
    );
    this.figure = new Figure({
      id: "layer-statistics",
      title: "Layers under rounding",
      note: "What rounding does to each layer at the bits of the step, measured while training went on. The redder, the worse: little signal to quantisation noise, many values that an evaluation would clip, or a loss that is sensitive to noise in this layer. Where a schedule has bits for every layer, also these: many where it is red. Blank: nothing is lost there, or nothing was quantised.",
      controls: [
        labelled("Run", this.chooser.root),
        this.choice,
      ],
      draw: (width) => {
        const run = this.chosen();
        const table = run && this.table(run);
        const quantity = table && this.shown(table);
        const cells = quantity ? cellsShown(table, quantity) : [];
        return run && quantity && cells.length > 0 ? draw(run, cells, quantity, width) : this.emptyDrawing(run, width);
      },
      csv: async () => {
        const run = this.chosen()!;
        await this.context.store.loadAll([run.id]);
        return csv(run, this.table(run)!);
      },
    });
    this.root = this.figure.root;
    this.root.classList.add("tall");
  }

  private shown(table: Table): Quantity {
    const quantity = this.quantity ?? firstKnown(table) ?? quantities[0];
    this.choice.querySelector("select")!.value = quantity.key;
    return quantity;
  }

  // Where the quantity is not known of any layer, or the lines are not here yet, the choice stays.
  private emptyDrawing(run: Run | undefined, width: number): Drawing | null {
    if (!run) return null;
    const svg = svgElement("svg", { width, height: 40, viewBox: `0 0 ${width} 40` });
    addText(svg, 8, 22, this.table(run) ? "Not known of this run." : "…", { fill: "var(--muted)" });
    return { svg, points: () => [] };
  }

  private table(run: Run): Table | undefined {
    return this.context.store.tables.get(run.id)?.get("layers");
  }

  private known(): Run[] {
    return this.context.experiment.runs.filter((run) => (run.looks ?? 0) > 0);
  }

  private chosen(): Run | undefined {
    return this.chooser.chosen(this.known());
  }

  update() {
    this.chooser.offer(this.known());
    const run = this.chosen();
    if (run) this.context.store.load([run.id]);
    this.figure.update();
  }
}
