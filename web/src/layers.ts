// Bit operations of a run, layer by layer; time too, where the run has measured it.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "./context";
import { element, labelled, svgElement } from "./dom";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { durationText, shortNumber, significant } from "./format";
import { RunChooser } from "./run_chooser";
import type { Layer, Run } from "./runs";
import { addText, fitted, plotStyle, textWidth, type PlotSvg } from "./svg";

const gbitops = (count: number | string) => Number(count) / 1e9;

const parts = [
  ["forward", "forward", 1],
  ["error", "error", 0.6],
  ["weight_gradient", "weight gradient", 0.3],
] as const;

interface Bar {
  layer: string;
  x1: number;
  x2: number;
  opacity: number;
}

function barsOf(layers: Layer[]): Bar[] {
  return layers.flatMap((layer) => {
    let at = 0;
    return parts.map(([key, , opacity]) => {
      const x1 = at;
      at += gbitops(layer.actual[key]);
      return { layer: layer.name, x1, x2: at, opacity };
    });
  });
}

function describe(layer: Layer, seconds: number | undefined): string[] {
  return [
    layer.name,
    `${significant(gbitops(layer.actual.total))} GBitOps at ${layer.precision === "scheduled" ? "the scheduled bits" : layer.precision === "fp32" ? "fp32" : `${layer.precision} bits`}`,
    `${significant(gbitops(layer.paper.total))} as the papers count`,
    `${significant(layer.macs)} MACs an item`,
    ...(seconds === undefined ? [] : [durationText(seconds)]),
  ];
}

function addLegend(svg: SVGSVGElement) {
  let at = 8;
  const entry = (mark: SVGElement, text: string) => {
    svg.append(mark);
    addText(svg, at + 15, 16, text, { fill: "var(--muted)", size: 11.5 });
    at += 28 + 6.2 * text.length;
  };
  addText(svg, at, 41, "GBitOps", { fill: "var(--muted)", size: 11.5 }); // before the ticks, above the names
  for (const [, text, opacity] of parts)
    entry(
      svgElement("rect", { x: at, y: 7, width: 11, height: 11, rx: 2, fill: "var(--bits)", "fill-opacity": opacity }),
      text,
    );
  entry(svgElement("rect", { x: at + 5, y: 6, width: 1.5, height: 13, fill: "var(--ink)" }), "papers");
}

function draw(run: Run, width: number): Drawing {
  const layers = run.layers!;
  const seconds = run.result?.layer_seconds ?? {};
  const names = { size: 11.5 };
  const longest = Math.max(...layers.map((layer) => textWidth(layer.name, names)));
  const marginLeft = Math.min(width * 0.36, 14 + longest);
  const row = layers.length > 40 ? 15 : 21;
  const timed = layers.filter((layer) => layer.name in seconds);
  const most = Math.max(...layers.map((layer) => gbitops(layer.actual.total)));
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 60 + layers.length * row,
    marginLeft,
    marginRight: timed.length ? 74 : 16,
    marginTop: 54,
    marginBottom: 6,
    x: { label: null, axis: "top", grid: true, ticks: width < 500 ? 3 : 6, tickFormat: shortNumber },
    y: {
      domain: layers.map((layer) => layer.name),
      label: null,
      tickSize: 0,
      padding: 0.28,
      tickFormat: (name: string) => fitted(name, marginLeft - 12, names),
    },
    marks: [
      Plot.barX(barsOf(layers), { y: "layer", x1: "x1", x2: "x2", fill: "var(--bits)", fillOpacity: "opacity" }),
      Plot.tickX(layers, {
        y: "name",
        x: (layer: Layer) => gbitops(layer.paper.total),
        stroke: "var(--ink)",
        strokeWidth: 1.4,
      }),
      Plot.text(timed, {
        y: "name",
        x: most,
        dx: 68,
        textAnchor: "end",
        text: (layer: Layer) => durationText(seconds[layer.name]),
        fill: "var(--muted)",
      }),
    ],
    opacity: { type: "identity" },
  }) as PlotSvg & { scale: (name: string) => { bandwidth: number } };
  addLegend(svg);
  const x = svg.scale("x"),
    y = svg.scale("y") as unknown as { apply: (name: string) => number; bandwidth: number };
  const points = layers.map((layer): Point => ({
    x: x.apply(gbitops(layer.actual.total)),
    y: y.apply(layer.name) + y.bandwidth / 2,
    series: "layers",
    lines: () => describe(layer, seconds[layer.name]),
  }));
  return { svg, points: () => points };
}

function csv(run: Run): string[] {
  const seconds = run.result?.layer_seconds ?? {};
  const keys = ["forward", "error", "weight_gradient", "total"] as const;
  const header = [
    "run",
    "layer",
    "macs",
    "runs_at",
    ...["paper", "actual"].flatMap((count) => keys.map((key) => `${count}_${key}_bitops`)),
    "seconds",
  ];
  return [
    csvLine(header),
    ...run.layers!.map((layer) =>
      csvLine([
        run.name,
        layer.name,
        layer.macs,
        layer.precision,
        ...keys.map((key) => layer.paper[key]),
        ...keys.map((key) => layer.actual[key]),
        seconds[layer.name],
      ]),
    ),
  ];
}

export class Layers implements Section {
  readonly root: HTMLElement;
  private readonly figure: Figure;
  private readonly chooser = new RunChooser(() => this.figure.update());
  private readonly missing = element("p", { class: "note" });

  constructor(private readonly context: Context) {
    this.figure = new Figure({
      id: "layers",
      title: "Cost by layer",
      note: "Bit operations of the whole run. Bars are what each layer really took; the line across is the papers' count, every layer at the scheduled bits. Times stand at the right where a run has measured them.",
      controls: [labelled("Run", this.chooser.root), this.missing],
      draw: (width) => {
        const run = this.chosen();
        return run ? draw(run, width) : null;
      },
      csv: () => csv(this.chosen()!),
    });
    this.root = this.figure.root;
    this.root.classList.add("tall");
  }

  private known(): Run[] {
    return this.context.experiment.runs.filter((run) => run.layers?.length);
  }

  private chosen(): Run | undefined {
    return this.chooser.chosen(this.known());
  }

  update() {
    this.chooser.offer(this.known());
    const without = this.context.experiment.runs.filter((run) => !run.layers?.length);
    const reason = without[0]?.layers_missing ?? "";
    this.missing.textContent = without.length
      ? `Not known for ${without.length === 1 ? without[0].name : `${without.length} runs`}: ${reason}.`
      : "";
    this.figure.update();
  }
}
