// Metric against cost: groups as points with their deviation over seeds, and the front that none of them beats.

import * as Plot from "@observablehq/plot";
import type { Context } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { costText, isFraction, metricText, plural, shortNumber, spreadText } from "./format";
import { comparedGroups, groupStatistics, metricOf, paretoFront, type Group, type Statistics } from "./runs";
import { addText, plotStyle, type PlotSvg } from "./svg";

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
    return known && Number.isFinite(group.cost) ? [{ ...known, group, cost: group.cost }] : [];
  });
}

// fp32 costs so much more that beside it the others would share a corner: it is then a level across the figure.
function splitOff(marks: Mark[]): { marks: Mark[]; levels: Mark[] } {
  const levels = marks.filter((mark) => mark.group.line === "fp32");
  const rest = marks.filter((mark) => mark.group.line !== "fp32");
  const apart = rest.length > 0 && Math.max(...rest.map((mark) => mark.cost)) < 0.3;
  return apart ? { marks: rest, levels } : { marks, levels: [] };
}

// Names beside their points, where they cover neither a point nor another name; a name without such a place is left
// out, since the point still answers with it.
function addLabels(svg: SVGSVGElement, points: Point[], colors: string[], width: number) {
  const taken: Box[] = points.map(({ x, y }) => ({ x: x - 6, y: y - 6, width: 12, height: 12 }));
  points.forEach((point, i) => {
    const text = point.lines()[0];
    const size = { width: 6.8 * text.length + 4, height: 15 };
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
      addText(svg, box.x + 2, box.y + 11.5, text, { fill: colors[i], weight: 550, halo: true });
      return;
    }
  });
}

function describe(mark: Mark, metric: string, onFront: boolean): string[] {
  const spread = mark.count > 1 ? ` ± ${spreadText(metric, mark.deviation)}` : "";
  return [
    mark.group.label,
    `${metric} ${metricText(metric, mark.mean)}${spread}`,
    `cost ${costText(mark.cost)}`,
    plural(mark.count, "seed"),
    ...(onFront ? ["on the front"] : []),
  ];
}

function seedsOf(context: Context, marks: Mark[]) {
  return marks
    .filter((mark) => mark.count > 1)
    .flatMap((mark) =>
      mark.group.finished.map((run) => ({
        x: run.result!.relative_cost,
        y: metricOf(run, context.split),
        color: context.look.get(mark.group.key)!.color,
      })),
    );
}

function plot(context: Context, marks: Mark[], levels: Mark[], front: Group[], width: number): PlotSvg {
  const { metric } = context.experiment;
  const costs = marks.map((mark) => mark.cost);
  const log = Math.max(...costs) / Math.min(...costs) > 8;
  const color = (mark: Mark) => context.look.get(mark.group.key)!.color;
  const byGroup = new Map([...marks, ...levels].map((mark) => [mark.group.key, mark]));
  // Beyond the dearest point the front goes on to the edge.
  const edge = log ? Math.max(...costs) * 1.15 : Math.max(...costs) + 0.06 * (Math.max(...costs) - Math.min(...costs));
  const steps = front.map((group) => byGroup.get(group.key)!).filter((mark) => marks.includes(mark));
  const last = steps.at(-1);
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
      label: "bit operations relative to fp32",
      labelAnchor: "center",
      labelArrow: "none",
      tickFormat: shortNumber,
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
      Plot.line([...steps, ...(last ? [{ ...last, cost: edge }] : [])], {
        x: "cost",
        y: "mean",
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
  const { metric } = context.experiment;
  const { marks, levels } = splitOff(all);
  const front = paretoFront(comparedGroups(context.experiment), context.split, metric);
  const svg = plot(context, marks, levels, front, width);
  const x = svg.scale("x"),
    y = svg.scale("y");
  const point = (mark: Mark, at: number): Point => ({
    x: at,
    y: y.apply(mark.mean),
    series: "groups",
    lines: () => describe(mark, metric, front.includes(mark.group)),
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
    addText(svg, width - 26, y.apply(level.mean) - 5, `${level.group.label}, cost ${shortNumber(level.cost)}`, {
      fill: context.look.get(level.group.key)!.color,
      weight: 550,
      anchor: "end",
      halo: true,
    });
    points.push(point(level, width - 24));
  }
  return { svg, points: () => points };
}

function csv(context: Context): string[] {
  const front = paretoFront(comparedGroups(context.experiment), context.split, context.experiment.metric);
  const rows = marksOf(context).map(({ group, cost, mean, deviation, count }) =>
    csvLine([group.label, group.line, cost, mean, count > 1 ? deviation : "", count, front.includes(group) ? 1 : 0]),
  );
  return [
    csvLine([
      "label",
      "schedule",
      "relative_cost",
      `${context.split}_${context.experiment.metric}`,
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
    note: "Bars are one standard deviation over seeds, small dots the seeds; the dashed line is the front: the best that was reached at a cost or below it.",
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
}
