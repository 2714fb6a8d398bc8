// Metric against cost: groups as points with their deviation over seeds, and the front that none of them beats.

import * as Plot from "@observablehq/plot";
import type { Context } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import {
  costText,
  durationText,
  grouped,
  isFraction,
  metricText,
  plural,
  shortDuration,
  shortNumber,
  spreadText,
} from "./format";
import {
  comparedGroups,
  costOf,
  fronts,
  groupCost,
  groupMean,
  groupStatistics,
  mixtureWarning,
  metricOf,
  relativeCost,
  type Group,
  type Measure,
  type Statistics,
} from "./runs";
import { addText, fitted, plotStyle, textWidth, type PlotSvg } from "./svg";

interface Mark extends Statistics {
  group: Group;
  cost: number;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

const overlaps = (a: Box, b: Box) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

function marksOf(context: Context): Mark[] {
  return comparedGroups(context.experiment).flatMap((group) => {
    const known = groupStatistics(group, context.split);
    const cost = groupCost(group, context.measure);
    return known && Number.isFinite(cost) ? [{ ...known, group, cost }] : [];
  });
}

// fp32 costs so much more that beside it the others would share a corner: it is then a level across the figure.
function splitOff(marks: Mark[]): { marks: Mark[]; levels: Mark[] } {
  const levels = marks.filter((mark) => mark.group.line === "fp32");
  const rest = marks.filter((mark) => mark.group.line !== "fp32");
  const dearest = Math.max(...rest.map((mark) => mark.cost));
  const apart = rest.length > 0 && levels.every((mark) => dearest < 0.3 * mark.cost);
  return apart ? { marks: rest, levels } : { marks, levels: [] };
}

// Names beside their points, where they cover neither a point nor another name; a name without such a place is left
// out, since the point still answers with it.
function addLabels(svg: SVGSVGElement, points: Point[], colors: string[], width: number) {
  const taken: Box[] = points.map(({ x, y }) => ({ x: x - 6, y: y - 6, width: 12, height: 12 }));
  points.forEach((point, i) => {
    const look = { fill: colors[i], weight: 550, halo: true };
    const text = fitted(point.lines()[0], Math.min(220, 0.4 * width), look);
    const size = { width: textWidth(text, look) + 4, height: 15 };
    const places: [number, number][] = [
      [10, -7.5],
      [-10 - size.width, -7.5],
      [-size.width / 2, -24],
      [-size.width / 2, 9],
      [8, -22],
      [8, 8],
      [-8 - size.width, -22],
      [-8 - size.width, 8],
    ];
    for (const [dx, dy] of places) {
      const box = { x: point.x + dx, y: point.y + dy, ...size };
      const inside = box.x > 52 && box.x + box.width < width && box.y > 4;
      if (!inside || taken.some((other) => overlaps(other, box))) continue;
      taken.push(box);
      addText(svg, box.x + 2, box.y + 11.5, text, look);
      return;
    }
  });
}

function axisLabel({ count, axis }: Measure, room: number): string {
  if (axis === "time") return "time of the whole run";
  const meaning = { actual: "each layer at the bits it ran at", paper: "every layer at the scheduled bits" }[count];
  const whole = `GBitOps of the whole run, ${count}: ${meaning}`;
  return textWidth(whole, { size: 11.5 }) < room ? whole : `GBitOps of the whole run, ${count}`;
}

const levelText = (cost: number, { axis }: Measure) =>
  axis === "time" ? durationText(cost) : `${shortNumber(+cost.toPrecision(3))} GBitOps`;

function describe({ metric }: Context["experiment"], { count }: Measure, mark: Mark, onFront: boolean): string[] {
  const spread = mark.count > 1 ? ` ± ${spreadText(metric, mark.deviation)}` : "";
  return [
    mark.group.label,
    `${metric} ${metricText(metric, mark.mean)}${spread}`,
    `${grouped(groupCost(mark.group, { count, axis: "bitops" }))} GBitOps (${count}), cost ${costText(groupMean(mark.group, (run) => relativeCost(run, count)))}`,
    durationText(groupCost(mark.group, { count, axis: "time" })),
    `${plural(mark.count, "seed")} of ${mark.group.steps === null ? "?" : grouped(mark.group.steps)} steps`,
    ...(onFront ? ["on the front of its length"] : []),
  ];
}

function seedsOf(context: Context, marks: Mark[]) {
  return marks
    .filter((mark) => mark.count > 1)
    .flatMap((mark) =>
      mark.group.finished.map((run) => ({
        x: costOf(run, context.measure),
        y: metricOf(run, context.split),
        color: context.look.get(mark.group.key)!.color,
      })),
    );
}

function plot(context: Context, marks: Mark[], levels: Mark[], all: Group[][], width: number): PlotSvg {
  const { metric } = context.experiment;
  const costs = marks.map((mark) => mark.cost);
  const log = Math.min(...costs) > 0 && Math.max(...costs) / Math.min(...costs) > 8;
  const color = (mark: Mark) => context.look.get(mark.group.key)!.color;
  const byGroup = new Map(marks.map((mark) => [mark.group.key, mark]));
  // Beyond the dearest point the front goes on to the edge.
  const edge = log ? Math.max(...costs) * 1.15 : Math.max(...costs) + 0.06 * (Math.max(...costs) - Math.min(...costs));
  const steps = all.flatMap((front, i) => {
    const known = front.flatMap((group) => byGroup.get(group.key) ?? []);
    return known.length ? [...known, { ...known.at(-1)!, cost: edge }].map((mark) => ({ ...mark, front: i })) : [];
  });
  return Plot.plot({
    style: plotStyle,
    width,
    height: Math.round(Math.min(460, Math.max(320, width * 0.5))),
    marginLeft: 56,
    marginRight: 24,
    marginTop: 28,
    marginBottom: 44,
    x: {
      type: log ? "log" : "linear",
      label: axisLabel(context.measure, width - 80),
      labelAnchor: "center",
      labelArrow: "none",
      tickFormat: context.measure.axis === "time" ? shortDuration : shortNumber,
      ticks: width < 500 ? 4 : 7,
      grid: true,
      insetLeft: 24,
      insetRight: 34,
    },
    y: {
      label: `${context.split === "test" ? "test" : "held-out"} ${metric}`,
      labelArrow: "none",
      grid: true,
      inset: 16,
      ticks: 6,
      tickFormat: isFraction(metric) ? (v: number) => `${+(100 * v).toFixed(2)} %` : shortNumber,
    },
    marks: [
      Plot.ruleY(levels, { y: "mean", stroke: color, strokeWidth: 1.2, strokeOpacity: 0.55 }),
      Plot.line(steps, {
        x: "cost",
        y: "mean",
        z: "front",
        curve: "step-after",
        stroke: "var(--muted)",
        strokeDasharray: "3 4",
        strokeWidth: 1.3,
      }),
      Plot.ruleX(
        marks.filter((mark) => mark.count > 1),
        {
          x: "cost",
          y1: (m: Mark) => m.mean - m.deviation,
          y2: (m: Mark) => m.mean + m.deviation,
          stroke: color,
          strokeWidth: 1.5,
          strokeOpacity: 0.7,
        },
      ),
      Plot.dot(seedsOf(context, marks), { x: "x", y: "y", fill: "color", r: 1.8, fillOpacity: 0.45 }),
      Plot.dot(marks, {
        x: "cost",
        y: "mean",
        fill: color,
        stroke: "var(--surface)",
        strokeWidth: 1.5,
        r: 5.5,
        symbol: (m: Mark) => context.look.get(m.group.key)!.symbol,
      }),
    ],
  }) as PlotSvg;
}

function draw(context: Context, width: number): Drawing | null {
  const all = marksOf(context);
  if (all.length === 0) return null;
  const { experiment, measure } = context;
  const { marks, levels } = splitOff(all);
  const each = fronts(experiment, context.split, measure);
  const onFront = new Set(each.flat());
  const svg = plot(context, marks, levels, each, width);
  const x = svg.scale("x"),
    y = svg.scale("y");
  const point = (mark: Mark, at: number): Point => ({
    x: at,
    y: y.apply(mark.mean),
    series: "groups",
    lines: () => describe(experiment, measure, mark, onFront.has(mark.group)),
  });
  const ordered = [...marks].sort((a, b) => a.cost - b.cost);
  const points = ordered.map((mark) => point(mark, x.apply(mark.cost)));
  addLabels(
    svg,
    points,
    ordered.map((mark) => context.look.get(mark.group.key)!.color),
    width,
  );
  for (const level of levels) {
    addText(
      svg,
      width - 26,
      y.apply(level.mean) - 5,
      `${level.group.label}, ${levelText(level.cost, measure)}`,
      { fill: context.look.get(level.group.key)!.color, weight: 550, anchor: "end", halo: true },
      width - 90,
    );
    points.push(point(level, width - 24));
  }
  return { svg, points: () => points };
}

function csv(context: Context): string[] {
  const { experiment, split } = context;
  const front = new Set(fronts(experiment, split, context.measure).flat());
  const rows = marksOf(context).map(({ group, mean, deviation, count }) =>
    csvLine([
      group.label,
      group.line,
      group.steps,
      groupCost(group, { count: "paper", axis: "bitops" }),
      groupCost(group, { count: "actual", axis: "bitops" }),
      groupMean(group, (run) => relativeCost(run, "paper")),
      groupMean(group, (run) => relativeCost(run, "actual")),
      groupCost(group, { count: "actual", axis: "time" }),
      mean,
      count > 1 ? deviation : "",
      count,
      front.has(group) ? 1 : 0,
    ]),
  );
  return [
    csvLine([
      "label",
      "schedule",
      "steps",
      "gbitops_paper",
      "gbitops_actual",
      "relative_cost",
      "relative_cost_actual",
      "seconds",
      `${split}_${experiment.metric}`,
      "deviation",
      "seeds",
      "pareto_front",
    ]),
    ...rows,
  ];
}

export function tradeoff(context: Context): Figure {
  return new Figure({
    id: "tradeoff",
    title: "Metric against cost",
    note: "Bars are one standard deviation over seeds, small dots the seeds; the dashed line is the front: the best that was reached at a cost or below it. What counts as cost is chosen at the top.",
    warning: () => mixtureWarning(context.experiment),
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
}
