// The loss over two directions around trained models.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "./context";
import { element, svgElement } from "./dom";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { significant } from "./format";
import type { Landscape, Run } from "./runs";
import { addText, plotStyle, together, type Placed, type PlotSvg } from "./svg";

const samples = 96; // a side
const levels = 14;

// Where a value lies on a rising axis: the index before it, and how far it is towards the next.
function locate(axis: number[], value: number): [number, number] {
  let i = 0;
  while (i < axis.length - 2 && axis[i + 1] <= value) ++i;
  return [i, Math.max(0, Math.min(1, (value - axis[i]) / (axis[i + 1] - axis[i])))];
}

// Bilinear, onto even steps: contours want these, and a file may have others.
function resample({ x, y, loss }: Landscape): Float64Array {
  const values = new Float64Array(samples * samples);
  const along = (axis: number[]) =>
    Array.from({ length: samples }, (_, i) => locate(axis, axis[0] + ((axis.at(-1)! - axis[0]) * i) / (samples - 1)));
  const columns = along(x),
    rows = along(y);
  const at = (i: number, j: number) => loss[i][j] ?? NaN;
  rows.forEach(([i, v], row) =>
    columns.forEach(([j, u], column) => {
      values[row * samples + column] =
        (1 - v) * ((1 - u) * at(i, j) + u * at(i, j + 1)) + v * ((1 - u) * at(i + 1, j) + u * at(i + 1, j + 1));
    }),
  );
  return values;
}

function thresholds(runs: Run[]): number[] {
  const all = runs.flatMap((run) => run.landscape!.loss.flat()).filter((value): value is number => value !== null);
  const low = Math.min(...all),
    high = Math.max(...all);
  // Losses rise by orders of magnitude towards the edges: even steps of the logarithm, where there is one.
  const position = (i: number) => i / levels;
  return Array.from({ length: levels }, (_, i) =>
    low > 0 && high / low > 4 ? low * (high / low) ** position(i) : low + (high - low) * position(i),
  );
}

function panel(run: Run, levelsOf: number[], size: number): { svg: PlotSvg; points: Point[] } {
  const landscape = run.landscape!;
  const { x, y, loss } = landscape;
  const bounds = { width: samples, height: samples, x1: x[0], x2: x.at(-1)!, y1: y[0], y2: y.at(-1)! };
  const values = resample(landscape);
  const svg = Plot.plot({
    style: plotStyle,
    width: size,
    height: size,
    marginLeft: 40,
    marginRight: 14,
    marginTop: 26,
    marginBottom: 28,
    x: { label: null, ticks: 5, domain: [bounds.x1, bounds.x2] },
    y: { label: null, ticks: 5, domain: [bounds.y1, bounds.y2] },
    color: { type: "threshold", domain: levelsOf.slice(1), scheme: "YlGnBu", reverse: true },
    marks: [
      Plot.contour(values, {
        ...bounds,
        fill: (v: number) => v,
        stroke: "var(--surface)",
        strokeOpacity: 0.35,
        strokeWidth: 0.6,
        thresholds: levelsOf,
      }),
      Plot.dot([[0, 0]], { stroke: "#ffffff", strokeWidth: 1.6, r: 3.5 }),
    ],
  }) as PlotSvg;
  addText(svg, 40, 16, landscape.title ?? run.name, { weight: 600 }, size - 54);
  const px = svg.scale("x"),
    py = svg.scale("y");
  const points = y.flatMap((v, i) =>
    x.map((u, j): Point => ({
      x: px.apply(u),
      y: py.apply(v),
      series: `${run.id} ${i}`,
      lines: () => [
        run.name,
        `loss ${loss[i][j] === null ? "not finite" : significant(loss[i][j]!)}`,
        `at ${significant(u, 3)}, ${significant(v, 3)}`,
      ],
    })),
  );
  return { svg, points };
}

function addLegend(svg: SVGSVGElement, levelsOf: number[], color: (value: number) => string, y: number) {
  const from = 40 + 34,
    side = 10;
  addText(svg, 40, y + 11, "loss", { fill: "var(--muted)", size: 11.5 });
  addText(svg, from, y + 11, significant(levelsOf[0], 3), { fill: "var(--muted)", size: 11.5 });
  levelsOf.forEach((level, i) =>
    svg.append(svgElement("rect", { x: from + 38 + i * side, y, width: side, height: 13, fill: color(level) })),
  );
  addText(svg, from + 46 + levelsOf.length * side, y + 11, `${significant(levelsOf.at(-1)!, 3)} or more`, {
    fill: "var(--muted)",
    size: 11.5,
  });
}

function draw(runs: Run[], width: number): Drawing | null {
  if (runs.length === 0) return null;
  const across = Math.max(1, Math.min(runs.length, Math.floor(width / 300)));
  const size = Math.min(420, width / across);
  const levelsOf = thresholds(runs);
  const placed: Placed[] = [],
    points: Point[] = [];
  runs.forEach((run, i) => {
    const { svg, points: own } = panel(run, levelsOf, size);
    const x = (i % across) * size,
      y = Math.floor(i / across) * size;
    placed.push({ svg, x, y });
    points.push(...own.map((point) => ({ ...point, x: point.x + x, y: point.y + y })));
  });
  const height = Math.ceil(runs.length / across) * size;
  const svg = together(width, height + 30, placed);
  addLegend(
    svg,
    levelsOf,
    (placed[0].svg as PlotSvg).scale("color").apply as unknown as (value: number) => string,
    height + 10,
  );
  return { svg, points: () => points };
}

function csv(runs: Run[]): string[] {
  return [
    csvLine(["run", "x", "y", "loss"]),
    ...runs.flatMap((run) =>
      run.landscape!.y.flatMap((v, i) =>
        run.landscape!.x.map((u, j) => csvLine([run.name, u, v, run.landscape!.loss[i][j]])),
      ),
    ),
  ];
}

export class Landscapes implements Section {
  readonly root: HTMLElement;
  private readonly figure: Figure;
  private readonly damaged = element("p", { class: "note" });

  constructor(private readonly context: Context) {
    this.figure = new Figure({
      id: "landscapes",
      title: "Loss landscapes",
      note: "The loss over two directions from the trained weights, which are at the ring. Dark is low; all share one scale.",
      controls: [this.damaged],
      draw: (width) => draw(this.known(), width),
      csv: () => csv(this.known()),
    });
    this.root = this.figure.root;
  }

  private known(): Run[] {
    return this.context.experiment.runs.filter((run) => run.landscape);
  }

  update() {
    const damaged = this.context.experiment.runs.filter((run) => run.landscape_missing);
    this.damaged.textContent = damaged.map((run) => `Left out: ${run.name}: ${run.landscape_missing}.`).join(" ");
    this.figure.update();
  }
}
