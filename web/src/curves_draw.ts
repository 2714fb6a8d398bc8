// The drawing of learning curves: the quantity above, a strip of bits for each schedule below, one axis for both.

import * as Plot from "@observablehq/plot";
import { placeOf, segmentsOf, type BitRuns } from "./bit_runs";
import type { Tables } from "./columns";
import { svgElement } from "./dom";
import type { Drawing, Point } from "./figure";
import {
  bitsText,
  costText,
  durationText,
  grouped,
  isFraction,
  metricText,
  shortDuration,
  shortNumber,
  significant,
} from "./format";
import type { Look } from "./palette";
import type { Count, Group, Run } from "./runs";
import { addText, plotStyle, textWidth, together, type PlotSvg } from "./svg";
import { nearestIndex, thin, type Thinned } from "./thin";

export type Quantity = "metric" | "loss" | "lr";
export type Axis = "step" | "cost" | "seconds";

export interface Curve {
  run: Run;
  group: Group;
  tables: Tables;
  look: Look;
  bitRuns: BitRuns;
}

export interface CurveOptions {
  width: number;
  quantity: Quantity;
  axis: Axis;
  metric: string;
  count: Count;
  zoom: [number, number] | null;
}

interface Line extends Curve {
  step: Float64Array;
  x: Float64Array;
  y: Float64Array;
}

// Points in all; more of them than pixels would only cost time.
const mostPoints = 30_000;
const mostLabels = 12;
const mostStrips = 16;
const stripHeight = 11,
  stripGap = 5;
const margin = { left: 56, right: 20, top: 24 };
const labelRoom = 156; // pixels, of names at the right
const endLook = (fill: string) => ({ fill, weight: 550 });

const none = new Float64Array();

// How the cost so far is told: GBitOps in the count that was chosen, where all runs logged them. Old ones know the papers'
// count alone, relative to fp32.
type CostColumn = "gbitops_actual" | "gbitops_paper" | "relative_cost";

function costColumn(curves: Curve[], count: Count): CostColumn {
  const wanted = `gbitops_${count}` as const;
  return curves.every(({ tables }) => tables.get("train")!.columns.has(wanted)) ? wanted : "relative_cost";
}

function axisValues(curve: Curve, axis: Axis, column: CostColumn): Float64Array {
  const columns = curve.tables.get("train")!.columns;
  const step = columns.get("step") ?? none;
  if (axis === "step") return step;
  if (axis === "seconds") return columns.get("seconds") ?? none;
  if (column !== "relative_cost") return columns.get(column)!;
  const total = curve.run.total_steps ?? step.at(-1) ?? 1;
  const cost = columns.get("relative_cost") ?? none;
  return cost.map((value, i) => (value * step[i]) / total);
}

function lineOf(curve: Curve, options: CurveOptions, column: CostColumn): Line {
  const columns = curve.tables.get("train")!.columns;
  const name = options.quantity === "metric" ? options.metric : options.quantity;
  return {
    ...curve,
    step: columns.get("step") ?? none,
    x: axisValues(curve, options.axis, column),
    y: columns.get(name) ?? none,
  };
}

function extent(lines: Line[]): [number, number] {
  let high = -Infinity;
  for (const line of lines) if (line.x.length) high = Math.max(high, line.x[line.x.length - 1]);
  return [0, high > 0 ? high : 1];
}

const quantityLabel = ({ quantity, metric }: CurveOptions) => ({ metric, loss: "loss", lr: "learning rate" })[quantity];
const costLabel = {
  gbitops_actual: "GBitOps so far, actual",
  gbitops_paper: "GBitOps so far, paper",
  relative_cost: "bit operations so far, relative to the whole run at fp32, as papers count",
};
const axisLabel = (axis: Axis, column: CostColumn) =>
  ({ step: "step", cost: costLabel[column], seconds: "time" })[axis];
const axisTick = { step: shortNumber, cost: shortNumber, seconds: shortDuration };

function quantityText(options: CurveOptions, value: number): string {
  if (options.quantity === "metric") return metricText(options.metric, value);
  return significant(value);
}

interface Evaluation {
  x: number;
  y: number;
  split: string;
  step: number;
  color: string;
  line: Line;
}

// Evaluations lie at their step, wherever lines of training were logged.
function evaluations(line: Line, options: CurveOptions, from: number, to: number): Evaluation[] {
  const name = options.quantity === "metric" ? options.metric : options.quantity;
  const found: Evaluation[] = [];
  for (const [split, table] of line.tables) {
    const step = table.columns.get("step"),
      value = table.columns.get(name);
    if (split === "train" || !step || !value || line.step.length === 0) continue;
    for (let i = 0; i < table.rows; ++i) {
      const x = placeOf(line.step, line.x, step[i]);
      if (x >= from && x <= to && Number.isFinite(value[i]))
        found.push({ x, y: value[i], split, step: step[i], color: line.look.color, line });
    }
  }
  return found;
}

function costSoFar(at: (name: string) => number, count: Count): string {
  const actual = (at("relative_cost") * at("gbitops_actual")) / at("gbitops_paper");
  return count === "actual" && Number.isFinite(actual)
    ? `cost ${costText(actual)} (actual)`
    : `cost ${costText(at("relative_cost"))} (paper)`;
}

function pointLines(line: Line, options: CurveOptions, i: number): string[] {
  const columns = line.tables.get("train")!.columns;
  const at = (name: string) => columns.get(name)?.[i] ?? NaN;
  return [
    `${line.group.label}, seed ${line.run.seed}`,
    `step ${grouped(line.step[i])}`,
    `${quantityLabel(options)} ${quantityText(options, line.y[i])}`,
    bitsText(at("bits")),
    `${costSoFar(at, options.count)}, ${durationText(at("seconds"))}`,
  ];
}

// Labels at the ends of lines, moved apart where they would touch.
function endLabels(
  svg: SVGSVGElement,
  ends: { y: number; text: string; color: string }[],
  x: number,
  top: number,
  bottom: number,
) {
  const spacing = 14;
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, i) => (end.y = Math.max(end.y, i === 0 ? top : ends[i - 1].y + spacing)));
  for (let i = ends.length - 1; i >= 0; --i)
    ends[i].y = Math.min(ends[i].y, i === ends.length - 1 ? bottom : ends[i + 1].y - spacing);
  for (const { y, text, color } of ends) addText(svg, x, y + 4, text, endLook(color), labelRoom);
}

// Of each schedule the run that came furthest stands for all.
function furthest(lines: Line[]): Line[] {
  const rows = new Map<string, Line>();
  for (const line of lines) {
    const known = rows.get(line.group.key);
    if (!known || (line.step.at(-1) ?? 0) > (known.step.at(-1) ?? 0)) rows.set(line.group.key, line);
  }
  return [...rows.values()].filter((line) => line.bitRuns.length > 0).slice(0, mostStrips);
}

function bitsStrips(
  lines: Line[],
  options: CurveOptions,
  from: number,
  to: number,
  right: number,
  label: string,
): { svg: SVGSVGElement; height: number } {
  const rows = furthest(lines);
  const pixels = Math.floor(options.width / 2);
  const strips = rows.flatMap(({ bitRuns, step, x }, row) =>
    segmentsOf(bitRuns, step, x, from, to, pixels).map((segment) => ({ ...segment, row })),
  );
  const quantised = strips.map((strip) => strip.bits).filter((bits) => bits > 0);
  const low = Math.floor(Math.min(...quantised)),
    high = Math.ceil(Math.max(...quantised));
  const strength = (bits: number) => (bits === 0 ? 1 : high > low ? 0.16 + (0.84 * (bits - low)) / (high - low) : 0.6);
  const paint = (bits: number) => (bits === 0 ? "var(--fp32)" : "var(--bits)");
  const top = 30,
    height = top + rows.length * (stripHeight + stripGap) + 40;
  const svg = Plot.plot({
    style: plotStyle,
    width: options.width,
    height,
    marginLeft: margin.left,
    marginRight: right,
    marginTop: top,
    marginBottom: 40,
    x: {
      domain: [from, to],
      label,
      labelAnchor: "center",
      labelArrow: "none",
      tickFormat: axisTick[options.axis],
      ticks: options.width < 500 ? 4 : 8,
    },
    y: { axis: null, domain: [rows.length, 0] },
    marks: [
      Plot.rect(strips, {
        x1: "x1",
        x2: "x2",
        y1: (s) => s.row + 0.16,
        y2: (s) => s.row + 0.84,
        fill: (s) => paint(s.bits),
        fillOpacity: (s) => strength(s.bits),
      }),
    ],
    opacity: { type: "identity" },
  }) as PlotSvg;
  const y = svg.scale("y");
  rows.forEach((line, row) => {
    const { label } = line.group,
      middle = y.apply(row + 0.5) + 4;
    const fill = line.look.color;
    if (right > margin.right) addText(svg, options.width - right + 8, middle, label, { fill, size: 11 }, labelRoom);
    else addText(svg, margin.left - 6, middle, label, { fill, anchor: "end", size: 10.5 }, margin.left - 8);
  });
  addBitsLegend(
    svg,
    quantised.length ? Array.from({ length: high - low + 1 }, (_, i) => low + i) : [],
    strips.some((strip) => strip.bits === 0),
    strength,
    paint,
  );
  return { svg, height };
}

function addBitsLegend(
  svg: SVGSVGElement,
  levels: number[],
  hasFp32: boolean,
  strength: (bits: number) => number,
  paint: (bits: number) => string,
) {
  const shown = levels.length > 9 ? [levels[0], levels[Math.floor(levels.length / 2)], levels.at(-1)!] : levels;
  let x = margin.left;
  addText(svg, x, 16, "bits", { fill: "var(--muted)", size: 11.5 });
  x += 32;
  for (const bits of [...shown, ...(hasFp32 ? [0] : [])]) {
    const text = bits === 0 ? "fp32" : String(bits);
    svg.append(
      svgElement("rect", { x, y: 7, width: 11, height: 11, rx: 2, fill: paint(bits), "fill-opacity": strength(bits) }),
    );
    addText(svg, x + 15, 16, text, { fill: "var(--muted)", size: 11.5 });
    x += 22 + 7 * text.length;
  }
}

function rightMargin(lines: Line[], width: number): number {
  const labels = [...new Set(lines.map((line) => line.group.label))];
  if (width < 620 || labels.length > mostLabels) return margin.right;
  const widest = Math.max(0, ...labels.map((label) => textWidth(label, endLook(""))));
  return 14 + Math.min(labelRoom, widest);
}

function drawLines(lines: Line[], options: CurveOptions, from: number, to: number, right: number, height: number) {
  const buckets = Math.max(
    60,
    Math.min(
      Math.floor((options.width - margin.left - right) / 1.5),
      Math.floor(mostPoints / Math.max(1, lines.length)),
    ),
  );
  const thinned = lines.map((line) => thin(line.x, line.y, from, to, buckets));
  const many = lines.length > 12;
  // A line through one point is not seen.
  const alone = lines.flatMap(({ look }, i) =>
    thinned[i].x.length === 1 ? [{ x: thinned[i].x[0], y: thinned[i].mean[0], color: look.color }] : [],
  );
  const evals = lines.flatMap((line) => evaluations(line, options, from, to));
  const svg = Plot.plot({
    style: plotStyle,
    width: options.width,
    height,
    marginLeft: margin.left,
    marginRight: right,
    marginTop: margin.top,
    marginBottom: 8,
    x: { domain: [from, to], axis: null },
    y: {
      label: quantityLabel(options),
      labelArrow: "none",
      grid: true,
      nice: true,
      ticks: 6,
      tickFormat:
        options.quantity === "metric" && isFraction(options.metric)
          ? (v: number) => `${+(100 * v).toFixed(2)} %`
          : shortNumber,
    },
    marks: [
      Plot.gridX({ ticks: options.width < 500 ? 4 : 8 }),
      ...lines.flatMap(({ look }, i) => {
        const { x, mean, low, high } = thinned[i];
        const shaded = low.some((value, j) => value < high[j]);
        return [
          ...(shaded ? [Plot.areaY(x, { x, y1: low, y2: high, fill: look.color, fillOpacity: 0.13 })] : []),
          Plot.line(x, {
            x,
            y: mean,
            stroke: look.color,
            strokeWidth: many ? 1 : 1.5,
            strokeOpacity: many ? 0.75 : 1,
            strokeDasharray: look.dash,
          }),
        ];
      }),
      Plot.dot(alone, { x: "x", y: "y", fill: "color", r: many ? 2 : 3 }),
      Plot.dot(evals, { x: "x", y: "y", stroke: "color", fill: "var(--surface)", r: many ? 2 : 3, strokeWidth: 1.4 }),
    ],
  }) as PlotSvg;
  return { svg, thinned, evals };
}

type Apply = (value: number) => number;

// The logged points nearest to what is drawn: what they say is what was logged.
function trainingPoints(lines: Line[], thinned: Thinned[], options: CurveOptions, x: Apply, y: Apply): Point[] {
  return lines.flatMap((line, i) =>
    [...thinned[i].x].map((middle): Point => {
      const row = nearestIndex(line.x, middle);
      return {
        x: x(line.x[row]),
        y: y(line.y[row]),
        series: `run ${line.run.id}`,
        lines: () => pointLines(line, options, row),
      };
    }),
  );
}

function evaluationPoints(evals: Evaluation[], options: CurveOptions, x: Apply, y: Apply): Point[] {
  return evals.map(({ x: at, y: value, split, step, line }): Point => ({
    x: x(at),
    y: y(value),
    series: `${split} ${line.run.id}`,
    lines: () => [
      `${line.group.label}, seed ${line.run.seed}`,
      `step ${grouped(step)}, ${split === "valid" ? "held out" : split}`,
      `${quantityLabel(options)} ${quantityText(options, value)}`,
    ],
  }));
}

export function drawCurves(curves: Curve[], options: CurveOptions): Drawing & { invert: (pixel: number) => number } {
  const column = costColumn(curves, options.count);
  const lines = curves.map((curve) => lineOf(curve, options, column));
  const [first, last] = extent(lines);
  const [from, to] = options.zoom ?? [first, last];
  const right = rightMargin(lines, options.width);
  const height = Math.round(Math.min(360, Math.max(230, options.width * 0.4)));
  const { svg, thinned, evals } = drawLines(lines, options, from, to, right, height);
  const x = svg.scale("x"),
    y = svg.scale("y");
  const strips = bitsStrips(lines, options, from, to, right, axisLabel(options.axis, column));
  const outer = together(options.width, height + strips.height, [
    { svg, x: 0, y: 0 },
    { svg: strips.svg, x: 0, y: height },
  ]);
  Object.assign(outer.dataset, { from, to, first, last });

  if (right > margin.right) {
    const ends = new Map<string, { y: number; text: string; color: string }>();
    lines.forEach((line, i) => {
      const value = thinned[i].mean.at(-1);
      if (value !== undefined && !ends.has(line.group.key))
        ends.set(line.group.key, { y: y.apply(value), text: line.group.label, color: line.look.color });
    });
    endLabels(outer, [...ends.values()], options.width - right + 8, margin.top, height - 8);
  }
  const points = () => [
    ...trainingPoints(lines, thinned, options, x.apply, y.apply),
    ...evaluationPoints(evals, options, x.apply, y.apply),
  ];
  return {
    svg: outer,
    points,
    invert: (pixel) => x.invert(Math.max(margin.left, Math.min(options.width - right, pixel))),
  };
}
