// Equal cost: what a budget of bit operations buys, spent in different ways, and how far each is from constant bits.

import * as Plot from "@observablehq/plot";
import type { Context } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { isFraction, lowerIsBetter, metricText, plural, shortNumber, significant, spreadText } from "./format";
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

interface Difference {
  mean: number;
  half: number; // of its 95 % interval; NaN for fewer than two pairs
  pairs: number;
  p: number; // of a paired t test; NaN for fewer than three pairs, or where all differ alike
}

interface Entry extends Statistics {
  group: Group;
  budget: number; // 1: full cost
  way: string;
  family: Family;
  difference: Difference | null; // from constant at the same budget; of that one, and at full cost, none
}

// Student's t at 0.975, by degrees of freedom; beyond 30 within 0.002.
const quantiles = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11,
  2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];
export const studentQuantile = (degrees: number) => quantiles[degrees - 1] ?? 1.96 + 2.4 / degrees;

// Two-sided p of Student's t with whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
export function studentP(t: number, degrees: number): number {
  const angle = Math.atan(Math.abs(t) / Math.sqrt(degrees));
  const sine = Math.sin(angle),
    cosine = Math.cos(angle),
    odd = degrees % 2 === 1;
  let sum = 0,
    term = odd ? cosine : 1;
  for (let power = odd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term;
    term *= (cosine * cosine * (power + 1)) / (power + 2);
  }
  return 1 - (odd ? (2 / Math.PI) * (angle + sine * sum) : sine * sum);
}

// Holm's: the smallest times all of them, the next times one less, and none below the one before.
export function holm(p: number[]): number[] {
  const order = [...p.keys()].sort((a, b) => p[a] - p[b]);
  const adjusted = [...p];
  let before = 0;
  order.forEach((i, rank) => (adjusted[i] = before = Math.max(before, Math.min(1, (p.length - rank) * p[i]))));
  return adjusted;
}

// Runs of one seed share weights, order and augmentation: differences are taken seed by seed.
export function pairedDifference(ours: Map<number, number>, theirs: Map<number, number>): Difference {
  const differences = [...ours].flatMap(([seed, value]) => (theirs.has(seed) ? [value - theirs.get(seed)!] : []));
  const n = differences.length;
  const mean = differences.reduce((a, b) => a + b, 0) / n;
  const squares = differences.reduce((sum, d) => sum + (d - mean) ** 2, 0);
  const error = n > 1 ? Math.sqrt(squares / (n - 1) / n) : NaN;
  const p = n > 2 && error > 0 ? studentP(mean / error, n - 1) : NaN;
  return { mean, half: n > 1 ? studentQuantile(n - 1) * error : NaN, pairs: n, p };
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

// A schedule's name alone, where no other of its name has the same budget.
function shortenWays(entries: Entry[]) {
  const nameOf = ({ way, family }: Entry) => (["ten", "matched", "loops"].includes(family) ? way.split(" ")[0] : way);
  const names = entries.map((entry) => `${entry.budget} ${nameOf(entry)}`);
  entries.forEach((entry, i) => {
    if (names.indexOf(names[i]) === names.lastIndexOf(names[i])) entry.way = nameOf(entry);
  });
}

// For all of them; a loop's bits alone answer a question of their own.
function adjust(entries: Entry[]) {
  const known = entries.flatMap(({ difference }) => (difference && Number.isFinite(difference.p) ? difference : []));
  holm(known.map(({ p }) => p)).forEach((p, i) => (known[i].p = p));
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
  adjust(entries.filter(({ family }) => family === "copies"));
  adjust(entries.filter(({ family }) => family !== "copies"));
  const sign = lowerIsBetter(experiment.metric) ? 1 : -1;
  return entries.sort((a, b) => a.budget - b.budget || sign * (a.mean - b.mean));
}

const colorOf = ({ family }: Entry) => families[family].color;

function differenceText(metric: string, value: number): string {
  const text = isFraction(metric) ? (100 * value).toFixed(2) : significant(value, 3);
  return value > 0 ? `+${text}` : text;
}

const pText = (p: number) => (Number.isFinite(p) ? `, p ${p < 0.001 ? "< 0.001" : p.toFixed(3)}` : "");

function describe(metric: string, entry: Entry): string[] {
  const spread = entry.count > 1 ? ` ± ${spreadText(metric, entry.deviation)}` : "";
  const { difference } = entry;
  const interval =
    difference && Number.isFinite(difference.half)
      ? ` [${differenceText(metric, difference.mean - difference.half)}, ${differenceText(metric, difference.mean + difference.half)}]`
      : "";
  return [
    entry.way,
    entry.budget === 1 ? "full cost" : `at ${entry.budget} of static's cost`,
    `${metric} ${metricText(metric, entry.mean)}${spread}, ${plural(entry.count, "seed")}`,
    ...(difference ? [`from constant ${differenceText(metric, difference.mean)}${interval}${pText(difference.p)}`] : []),
    entry.group.line,
  ];
}

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
function frontPanel({ experiment: { metric }, split }: Context, entries: Entry[], width: number): Panel {
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
    lines: () => describe(metric, entry),
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

// Differences from constant at one budget, a row each, with their intervals.
function differencePanel(context: Context, entries: Entry[], span: [number, number], width: number): Panel {
  const { metric } = context.experiment;
  const rows = entries.filter((entry) => entry.difference);
  const scale = isFraction(metric) ? 100 : 1;
  const labels = 100;
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
    y: { type: "point", domain: rows.map((entry) => entry.group.key), axis: null, padding: 0.6 },
    marks: [
      Plot.ruleX([0], { stroke: "var(--baseline-1)" }),
      Plot.ruleY(
        rows.filter((entry) => Number.isFinite(entry.difference!.half)),
        {
          y: (e: Entry) => e.group.key,
          x1: (e: Entry) => scale * Math.max(span[0], e.difference!.mean - e.difference!.half),
          x2: (e: Entry) => scale * Math.min(span[1], e.difference!.mean + e.difference!.half),
          stroke: colorOf,
          strokeWidth: 1.5,
        },
      ),
      Plot.dot(rows, {
        x: (e: Entry) => scale * e.difference!.mean,
        y: (e: Entry) => e.group.key,
        fill: colorOf,
        stroke: "var(--surface)",
        r: 4,
      }),
    ],
  }) as PlotSvg;
  addText(svg, labels, 16, `at ${rows[0].budget} of static's cost`, { weight: 550 });
  const x = svg.scale("x"),
    y = svg.scale("y") as unknown as { apply: (key: string) => number };
  const points = rows.map((entry) => {
    const at = y.apply(entry.group.key);
    addText(svg, labels - 8, at + 4, entry.way, { fill: colorOf(entry), anchor: "end", weight: 550 }, labels - 10);
    return {
      x: x.apply(scale * entry.difference!.mean),
      y: at,
      series: `differences at ${entry.budget}`,
      lines: () => describe(metric, entry),
    };
  });
  return { svg, points };
}

// All differences and zero, and of intervals what is no wider than three times that: those of two seeds would hide the rest.
function spanOf(entries: Entry[]): [number, number] {
  const known = entries.flatMap(({ difference }) => difference ?? []);
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
  const panels: (Panel & { x: number; y: number })[] = [{ ...frontPanel(context, entries, width), x: 0, y: 0 }];
  const span = spanOf(entries);
  const budgets = [...new Set(entries.filter((e) => e.difference && e.budget < 1).map((e) => e.budget))];
  const columns = Math.max(1, Math.min(budgets.length, Math.floor(width / 300)));
  const each = Math.floor(width / columns);
  let bottom = 330;
  for (let i = 0; i < budgets.length; i += columns) {
    const row = budgets.slice(i, i + columns).map((budget, j) => ({
      ...differencePanel(context, entries.filter((entry) => entry.budget === budget), span, each),
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

function csv(context: Context): string[] {
  const rows = entriesOf(context).map((entry) =>
    csvLine([
      entry.budget,
      entry.way,
      entry.group.line,
      entry.group.steps,
      paperCost(entry.group),
      entry.mean,
      entry.count > 1 ? entry.deviation : "",
      entry.count,
      entry.difference?.mean ?? "",
      entry.difference && Number.isFinite(entry.difference.half) ? entry.difference.half : "",
      entry.difference?.pairs ?? "",
      entry.difference && Number.isFinite(entry.difference.p) ? entry.difference.p : "",
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
    ]),
    ...rows,
  ];
}

export function equalCost(context: Context): Figure {
  return new Figure({
    id: "equal-cost",
    title: "At equal cost",
    note: "What a budget of bit operations buys: schedules scaled to it, closed loops and their bits alone (shuffled in time, or of another seed), constant bits, training for fewer steps, low bits first and high ones last. Above, means with one standard deviation over seeds, those of one budget from the best to the worst; the dashed line is the front. Below, differences from constant bits at the same budget, paired over seeds, each with its own 95 % interval: of many such, one is off zero by chance. What is pointed at tells its p, adjusted by Holm for all of these differences, those of a loop's bits alone by themselves.",
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
}
