// Equal cost: what a budget of bit operations buys, spent in different ways, and how far each is from constant bits.

import * as Plot from "@observablehq/plot";
import { bestOfTen, picksText, type BestOfTen } from "./best_of_ten";
import type { Context } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { isFraction, lowerIsBetter, metricText, plural, shortNumber, significant, spreadText } from "./format";
import { adjust, pairedDifference, type Difference } from "./paired";
import { groupCost, groupStatistics, metricOf, type Group, type Split, type Statistics } from "./runs";
import { addText, plotStyle, textWidth, together, type Placed, type PlotSvg } from "./svg";

// Ways to spend a budget, as families; their order is that of the legend.
const families = {
  ten: { label: "the ten", color: "var(--hue-1)" },
  matched: { label: "matched", color: "var(--hue-2)" },
  phases: { label: "low, then high", color: "var(--hue-3)" },
  shorter: { label: "shorter", color: "var(--hue-4)" },
  loops: { label: "closed loops", color: "var(--hue-5)" },
  copies: { label: "their bits alone", color: "var(--hue-6)" },
  other: { label: "others", color: "var(--hue-7)" },
  constant: { label: "constant", color: "var(--baseline-1)" },
  static: { label: "full cost", color: "var(--baseline-2)" },
} as const;
type Family = keyof typeof families;

export interface Entry extends Statistics {
  group: Group;
  budget: number; // 1: full cost
  way: string;
  family: Family;
  difference: Difference | null; // from constant at the same budget; of that one, and at full cost, none
}

const bySeed = (group: Group, split: Split) =>
  new Map(group.finished.map((run): [number, number] => [run.seed, metricOf(run, split)]));

const budgetOf = (line: string) => Number(/ budget=([\d.]+)/.exec(line)?.[1] ?? NaN);
const paperCost = (group: Group) => groupCost(group, { count: "paper", axis: "bitops" });

// What a shorter training changes in a recipe beside its schedule; and each is judged at the bits that it ends with.
const following = new Set([
  "schedule",
  "steps",
  "epochs",
  "warmup",
  "lr-delay",
  "lr-steps",
  "plateau-every",
  "eval-bits",
]);
const restOf = ({ runs: [{ variant }] }: Group) =>
  JSON.stringify(Object.entries(variant).filter(([key]) => !following.has(key)));

const tenNames = /^(RR|RTH|LR|LT|CR|CT|ETV|RTV|ER|ETH)\b/;

function wayOf({ line, copy, steps }: Group, full: Group): { way: string; family: Family } {
  if (copy) return { way: copy.way, family: "copies" };
  const phases = /^table (\d+)x\d+ (\d+)x\d+\b/.exec(line);
  if (phases && +phases[1] < +phases[2]) return { way: `${phases[1]} then ${phases[2]}`, family: "phases" };
  const without = line.replace(/ budget=[\d.]+/, "");
  if (/^static \d+ grad=\d+$/.test(without)) {
    if (without !== line) return { way: "constant", family: "constant" };
    if (Number(steps) < Number(full.steps)) return { way: "shorter", family: "shorter" };
  }
  if (tenNames.test(line)) return { way: without, family: "ten" };
  if (/^(price|waterfill)\b/.test(line)) return { way: without, family: "loops" };
  return { way: without, family: /^matched\b/.test(line) ? "matched" : "other" };
}

// A schedule's name, and of its words those by which it differs from others of its name at the same budget.
function shortenWays(entries: Entry[]) {
  const named = entries.filter(({ family }) => ["ten", "matched", "loops"].includes(family));
  const words = new Map(named.map((entry) => [entry, entry.way.split(" ")]));
  for (const [entry, own] of words) {
    const namesakes = named.filter((one) => one.budget === entry.budget && words.get(one)![0] === own[0]);
    const differs = (word: string) => !namesakes.every((one) => words.get(one)!.includes(word));
    entry.way = own.filter((word, i) => i === 0 || differs(word)).join(" ");
  }
}

// Groups with a budget say what full cost is. Others of that recipe belong to a budget that they cost: within a step, or
// a fifth of a percent; a loop's bits alone, which may cost less by its probes, to the loop's.
export function entriesOf({ experiment, split }: Pick<Context, "experiment" | "split">): Entry[] {
  const budgeted = experiment.groups.filter(
    (group) => budgetOf(group.line) > 0 && !group.copy && paperCost(group) > 0,
  );
  if (budgeted.length === 0) return [];
  const first = budgeted[0];
  const full = paperCost(first) / budgetOf(first.line);
  const budgets = [...new Set(budgeted.map((group) => budgetOf(group.line)))].sort((a, b) => a - b);
  const tolerance = Math.max(0.002, 1.5 / (first.steps ?? Infinity));
  const entries: Entry[] = [];
  for (const group of experiment.groups.filter((one) => restOf(one) === restOf(first))) {
    const known = groupStatistics(group, split);
    const share = group.copy?.budget ?? paperCost(group) / full;
    const budget = [...budgets, 1].find((one) => Math.abs(one - share) < tolerance);
    if (!known || budget === undefined) continue;
    const named = budget === 1 ? { way: group.label, family: "static" as const } : wayOf(group, first);
    entries.push({ ...known, ...named, group, budget, difference: null });
  }
  shortenWays(entries);
  for (const entry of entries) {
    const reference = entries.find((one) => one.budget === entry.budget && one.family === "constant");
    if (!reference || entry === reference) continue;
    const difference = pairedDifference(bySeed(entry.group, split), bySeed(reference.group, split));
    if (difference.pairs > 0) entry.difference = difference;
  }
  // A loop's bits alone answer a question of their own.
  const isCopy = ({ family }: Entry) => family === "copies";
  for (const some of [entries.filter(isCopy), entries.filter((entry) => !isCopy(entry))])
    adjust(some.flatMap(({ difference }) => difference ?? []));
  const sign = lowerIsBetter(experiment.metric) ? 1 : -1;
  return entries.sort((a, b) => a.budget - b.budget || sign * (a.mean - b.mean));
}

const colorOf = ({ family }: Entry) => families[family].color;

function differenceText(metric: string, value: number): string {
  const text = isFraction(metric) ? (100 * value).toFixed(2) : significant(value, 3);
  return value > 0 ? `+${text}` : text;
}

const pText = (p: number) => (Number.isFinite(p) ? `, p ${p < 0.001 ? "< 0.001" : p.toFixed(3)}` : "");

// "+0.30 [+0.10, +0.50], p 0.020"
function fullDifferenceText(metric: string, { mean, half, p }: Difference): string {
  const interval = Number.isFinite(half)
    ? ` [${differenceText(metric, mean - half)}, ${differenceText(metric, mean + half)}]`
    : "";
  return `${differenceText(metric, mean)}${interval}${pText(p)}`;
}

const budgetText = (budget: number) => (budget === 1 ? "full cost" : `at ${budget} of static's cost`);

function describe(metric: string, entry: Entry, best: BestOfTen[]): string[] {
  const spread = entry.count > 1 ? ` ± ${spreadText(metric, entry.deviation)}` : "";
  const fromBest = best.flatMap(({ others }) => others.get(entry) ?? []);
  return [
    entry.way,
    budgetText(entry.budget),
    `${metric} ${metricText(metric, entry.mean)}${spread}, ${plural(entry.count, "seed")}`,
    ...(entry.difference ? [`from constant ${fullDifferenceText(metric, entry.difference)}`] : []),
    ...fromBest.map((difference) => `from the best of the ten ${fullDifferenceText(metric, difference)}`),
    entry.group.line,
  ];
}

const describeBest = (metric: string, best: BestOfTen): string[] => [
  "the best of the ten",
  budgetText(best.budget),
  `from constant ${fullDifferenceText(metric, best.difference)}`,
  `${picksText(best)}: the best on the other seeds, by ${best.by === "valid" ? "held-out items" : "the test set"}`,
];

// At each budget the best, unless a smaller one has as good a one.
function frontOf(metric: string, entries: Entry[]): Entry[] {
  const sign = lowerIsBetter(metric) ? -1 : 1;
  const front: Entry[] = [];
  for (const entry of entries) if (!front.length || sign * (entry.mean - front.at(-1)!.mean) > 0) front.push(entry);
  return front;
}

interface Panel {
  svg: PlotSvg;
  points: Point[];
}

const metricTicks = (metric: string) =>
  isFraction(metric) ? (value: number) => `${+(100 * value).toFixed(2)} %` : shortNumber;

// Metric against budget. Those of one budget stand side by side, from the best to the worst.
function frontPanel(
  { experiment: { metric }, split }: Context,
  entries: Entry[],
  best: BestOfTen[],
  width: number,
): Panel {
  const budgets = [...new Set(entries.map((entry) => entry.budget))];
  const gap = Math.min(0.16, ...budgets.slice(1).map((budget, i) => budget - budgets[i]));
  const place = (entry: Entry) => {
    const same = entries.filter((one) => one.budget === entry.budget);
    return entry.budget + (same.length > 1 ? 0.8 * gap * (same.indexOf(entry) / (same.length - 1) - 0.5) : 0);
  };
  const front = frontOf(metric, entries);
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 320,
    marginLeft: 56,
    marginRight: 24,
    marginTop: 52,
    marginBottom: 42,
    x: {
      label: "bit operations, as a share of static at the highest bits",
      labelAnchor: "center",
      labelArrow: "none",
      ticks: budgets,
      tickFormat: String,
      insetLeft: 12,
      insetRight: 20,
    },
    y: {
      label: `${split === "test" ? "test" : "held-out"} ${metric}`,
      labelArrow: "none",
      grid: true,
      ticks: 6,
      inset: 12,
      tickFormat: metricTicks(metric),
    },
    marks: [
      Plot.line(front, { x: place, y: "mean", stroke: "var(--muted)", strokeDasharray: "3 4", strokeWidth: 1.3 }),
      Plot.ruleX(
        entries.filter((entry) => entry.count > 1),
        {
          x: place,
          y1: (e: Entry) => e.mean - e.deviation,
          y2: (e: Entry) => e.mean + e.deviation,
          stroke: colorOf,
          strokeOpacity: 0.7,
        },
      ),
      Plot.dot(entries, { x: place, y: "mean", fill: colorOf, stroke: "var(--surface)", r: 4.5 }),
    ],
  }) as PlotSvg;
  const x = svg.scale("x"),
    y = svg.scale("y");
  for (const entry of front) {
    const end = x.apply(place(entry)) > width - 90;
    const look = { fill: colorOf(entry), weight: 550, halo: true, anchor: end ? ("end" as const) : ("start" as const) };
    addText(svg, x.apply(place(entry)) + (end ? -8 : 8), y.apply(entry.mean) - 6, entry.way, look, 160);
  }
  addLegend(svg, entries, 70 + textWidth(`held-out ${metric}`, { size: 11.5 }), width);
  const points = entries.map((entry) => ({
    x: x.apply(place(entry)),
    y: y.apply(entry.mean),
    series: "front",
    lines: () => describe(metric, entry, best),
  }));
  return { svg, points };
}

// Beside the label of the axis.
function addLegend(svg: SVGSVGElement, entries: Entry[], from: number, width: number) {
  let x = from,
    y = 15;
  for (const [key, { label, color }] of Object.entries(families)) {
    if (!entries.some((entry) => entry.family === key)) continue;
    const look = { fill: color, weight: 550 };
    const room = textWidth(label, look) + 16;
    if (x + room > width) [x, y] = [from, y + 15];
    addText(svg, x, y, label, look);
    x += room;
  }
}

// A way's difference from constant, or that of the best of the ten.
interface Row {
  key: string;
  label: string;
  color: string;
  budget: number;
  difference: Difference;
  lines: () => string[];
}

// From the best way to the worst; last the best of the ten.
function rowsOf(metric: string, entries: Entry[], best: BestOfTen[]): Row[] {
  const ways = entries.flatMap((entry): Row[] =>
    entry.difference && entry.budget < 1
      ? [
          {
            key: entry.group.key,
            label: entry.way,
            color: colorOf(entry),
            budget: entry.budget,
            difference: entry.difference,
            lines: () => describe(metric, entry, best),
          },
        ]
      : [],
  );
  const picked = best.map(
    (one): Row => ({
      key: "the best of the ten",
      label: "best of the ten",
      color: families.ten.color,
      budget: one.budget,
      difference: one.difference,
      lines: () => describeBest(metric, one),
    }),
  );
  return [...ways, ...picked];
}

// Differences from constant at one budget, a row each, with their intervals.
function differencePanel({ metric }: Context["experiment"], rows: Row[], span: [number, number], width: number): Panel {
  const scale = isFraction(metric) ? 100 : 1;
  const labels = 140;
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 84 + 17 * rows.length,
    marginLeft: labels,
    marginRight: 14,
    marginTop: 34,
    marginBottom: 42,
    x: {
      label: `from constant${scale === 100 ? ", points" : ""}`,
      labelAnchor: "center",
      labelArrow: "none",
      domain: span.map((edge) => scale * edge),
      ticks: 4,
      grid: true,
    },
    y: { type: "point", domain: rows.map(({ key }) => key), axis: null, padding: 0.6 },
    marks: [
      Plot.ruleX([0], { stroke: "var(--baseline-1)" }),
      Plot.ruleY(
        rows.filter(({ difference }) => Number.isFinite(difference.half)),
        {
          y: "key",
          x1: ({ difference }: Row) => scale * Math.max(span[0], difference.mean - difference.half),
          x2: ({ difference }: Row) => scale * Math.min(span[1], difference.mean + difference.half),
          stroke: (row: Row) => row.color,
          strokeWidth: 1.5,
        },
      ),
      Plot.dot(rows, {
        x: ({ difference }: Row) => scale * difference.mean,
        y: "key",
        fill: (row: Row) => row.color,
        stroke: "var(--surface)",
        r: 4,
      }),
    ],
  }) as PlotSvg;
  addText(svg, labels, 16, budgetText(rows[0].budget), { weight: 550 });
  const x = svg.scale("x"),
    y = svg.scale("y") as unknown as { apply: (key: string) => number };
  const points = rows.map(({ key, label, color, budget, difference, lines }) => {
    const at = y.apply(key);
    addText(svg, labels - 8, at + 4, label, { fill: color, anchor: "end", weight: 550 }, labels - 10);
    return { x: x.apply(scale * difference.mean), y: at, series: `differences at ${budget}`, lines };
  });
  return { svg, points };
}

// All differences and zero, and of intervals what is no wider than three times that: those of two seeds would hide the rest.
function spanOf(rows: Row[]): [number, number] {
  const known = rows.map(({ difference }) => difference);
  const means = [0, ...known.map(({ mean }) => mean)];
  const low = Math.min(...means),
    high = Math.max(...means);
  const room = 1.5 * (high - low || 0.01);
  const ends = (side: 1 | -1) => known.map(({ mean, half }) => mean + side * (Number.isFinite(half) ? half : 0));
  return [Math.max(low - room, Math.min(low, ...ends(-1))), Math.min(high + room, Math.max(high, ...ends(1)))];
}

function draw(context: Context, width: number): Drawing | null {
  const entries = entriesOf(context);
  if (entries.length === 0) return null;
  const { experiment, split } = context;
  const best = bestOfTen(entries, experiment.metric, split);
  const panels: (Panel & { x: number; y: number })[] = [{ ...frontPanel(context, entries, best, width), x: 0, y: 0 }];
  const rows = rowsOf(experiment.metric, entries, best);
  const span = spanOf(rows);
  const budgets = [...new Set(rows.map(({ budget }) => budget))];
  const columns = Math.max(1, Math.min(budgets.length, Math.floor(width / 300)));
  const each = Math.floor(width / columns);
  let bottom = 330;
  for (let i = 0; i < budgets.length; i += columns) {
    const row = budgets.slice(i, i + columns).map((budget, j) => ({
      ...differencePanel(experiment, rows.filter((one) => one.budget === budget), span, each),
      x: j * each,
      y: bottom,
    }));
    panels.push(...row);
    bottom += Math.max(...row.map(({ svg }) => Number(svg.getAttribute("height")))) + 6;
  }
  const placed: Placed[] = panels.map(({ svg, x, y }) => ({ svg, x, y }));
  const points = panels.flatMap((panel) =>
    panel.points.map((point) => ({ ...point, x: point.x + panel.x, y: point.y + panel.y })),
  );
  return { svg: together(width, bottom, placed), points: () => points };
}

const differenceCells = (difference: Difference | null | undefined) => [
  difference?.mean ?? "",
  difference && Number.isFinite(difference.half) ? difference.half : "",
  difference?.pairs ?? "",
  difference && Number.isFinite(difference.p) ? difference.p : "",
];

function csv(context: Context): string[] {
  const entries = entriesOf(context);
  const best = bestOfTen(entries, context.experiment.metric, context.split);
  const ways = entries.map((entry) =>
    csvLine([
      entry.budget,
      entry.way,
      entry.group.line,
      entry.group.steps,
      paperCost(entry.group),
      entry.mean,
      entry.count > 1 ? entry.deviation : "",
      entry.count,
      ...differenceCells(entry.difference),
      ...differenceCells(best.map(({ others }) => others.get(entry)).find(Boolean)),
    ]),
  );
  const picked = best.map((one) =>
    csvLine([
      one.budget,
      "the best of the ten",
      picksText(one),
      ...["", "", "", "", one.picks.size],
      ...differenceCells(one.difference),
      ...differenceCells(null),
    ]),
  );
  return [
    csvLine([
      "budget",
      "way",
      "schedule",
      "steps",
      "gbitops_paper",
      `${context.split}_${context.experiment.metric}`,
      "deviation",
      "seeds",
      "from_constant",
      "half_interval",
      "pairs",
      "p_adjusted",
      "from_best",
      "best_half_interval",
      "best_pairs",
      "best_p_adjusted",
    ]),
    ...ways,
    ...picked,
  ];
}

export function equalCost(context: Context): Figure {
  return new Figure({
    id: "equal-cost",
    title: "At equal cost",
    note: "What a budget of bit operations buys: schedules scaled to it, closed loops and their bits alone (shuffled in time, or of another seed), constant bits, training for fewer steps, low bits first and high ones last. Above, means with one standard deviation over seeds, those of one budget from the best to the worst; the dashed line is the front. Below, differences from constant bits at the same budget, paired over seeds, each with its own 95 % interval: of many such, one is off zero by chance. What is pointed at tells its p, adjusted by Holm for all of these differences, those of a loop's bits alone by themselves. The best of the ten is on each seed the one that is best on all others, from three seeds on; how far another way is from it tells that way's point.",
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
}
