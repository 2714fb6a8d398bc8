// What the program says of runs (lowtide/report/run_data.h), and how they belong together.

import { grouped, lowerIsBetter } from "./format";

export interface Products {
  forward: number | string;
  error: number | string;
  weight_gradient: number | string;
  total: number | string;
}

export interface Layer {
  name: string;
  macs: number;
  precision: string;
  paper: Products;
  actual: Products;
}

export interface Landscape {
  x: number[];
  y: number[];
  loss: (number | null)[][];
  title?: string;
}

export interface Result {
  metric: string;
  valid: number | null;
  test: number | null;
  relative_cost: number;
  gbitops?: { paper: number; actual: number };
  seconds: number;
  steps: number;
  eval_bits?: number;
  layer_seconds?: Record<string, number>;
}

export interface Run {
  id: number;
  name: string;
  path: string;
  schedule: string;
  spec: {
    name: string;
    low?: number;
    high?: number; // the highest bits that occur, 0 for fp32
    static?: string; // the schedule at these throughout, which a saving is told against
    deficit?: number;
    window?: [number, number];
  };
  seed: number;
  model: string;
  data: string;
  data_dir: string;
  variant: Record<string, unknown>;
  total_steps: number | null;
  rates?: string; // of a learning rate that the bits follow
  result: Result | null;
  program: string | null;
  device: string | null;
  started: string | null;
  layers?: Layer[];
  layers_missing?: string;
  landscape?: Landscape;
  landscape_missing?: string;
  lines: number;
  looks?: number; // lines of layers
  last: Record<string, number | null>;
  metric: string;
  // while it is served
  generation?: number;
  end?: number;
  changed?: number;
}

export type Split = "test" | "valid";

// What runs are compared by: bit operations in one of two counts, each layer at the bits it ran at or every layer at the
// scheduled bits; or time.
export type Count = "actual" | "paper";
export type CostAxis = "bitops" | "time";
export interface Measure {
  count: Count;
  axis: CostAxis;
}

export interface Statistics {
  mean: number;
  deviation: number; // of the sample, n - 1; 0 for a single one
  count: number;
}

// The bits that a closed loop had, in another order or with another seed.
export interface Copy {
  way: string; // "price shuffled"
  budget: number;
}

// Runs that differ in nothing but the seed.
export interface Group {
  key: string;
  line: string; // the schedule; of a loop's bits, of which each seed has a table of its own, what they are
  copy: Copy | null;
  label: string;
  index: number;
  runs: Run[];
  finished: Run[];
  steps: number | null; // in all
}

// Runs whose metrics can be compared: of one model on one data set.
export interface Experiment {
  key: string;
  label: string;
  metric: string;
  runs: Run[];
  groups: Group[];
}

export function statistics(values: number[]): Statistics | null {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return null;
  const mean = finite.reduce((a, b) => a + b, 0) / finite.length;
  const squares = finite.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: finite.length > 1 ? Math.sqrt(squares / (finite.length - 1)) : 0, count: finite.length };
}

export const metricOf = (run: Run, split: Split): number => run.result?.[split] ?? NaN;

export function groupStatistics(group: Group, split: Split): Statistics | null {
  return statistics(group.finished.map((run) => metricOf(run, split)));
}

// Of a finished run.
export function relativeCost({ result }: Run, count: Count): number {
  if (!result) return NaN;
  const { gbitops } = result;
  return count === "actual" && gbitops && gbitops.paper > 0
    ? (result.relative_cost * gbitops.actual) / gbitops.paper
    : result.relative_cost;
}

// GBitOps of the whole run, or seconds.
export const costOf = ({ result }: Run, { count, axis }: Measure): number =>
  (axis === "time" ? result?.seconds : result?.gbitops?.[count]) ?? NaN;

export const groupMean = (group: Group, value: (run: Run) => number): number =>
  statistics(group.finished.map(value))?.mean ?? NaN;

export const groupCost = (group: Group, measure: Measure) => groupMean(group, (run) => costOf(run, measure));

export const bitRunsKey = (run: Run) =>
  `${run.schedule}|${run.total_steps}${run.rates === undefined ? "" : `|${run.rates}`}`;

const lastPart = (path: string) => path.split("/").filter(Boolean).at(-1) ?? "";

function collect<T>(items: T[], keyOf: (item: T) => string): Map<string, T[]> {
  const map = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const list = map.get(key);
    if (list) list.push(item);
    else map.set(key, [item]);
  }
  return map;
}

// `lowtide study budget` names their folders so: the tables alone would not tell.
export function copyOf({ name, schedule }: Run): Copy | null {
  const found = /^(price|waterfill)-(shuffled|replayed)-(\d*\.?\d+)-seed\d+$/.exec(lastPart(name));
  if (!found || !schedule.startsWith("table ")) return null;
  return { way: `${found[1]} ${found[2]}`, budget: Number(found[3]) };
}

function lineOf(run: Run): string {
  const copy = copyOf(run);
  return copy ? `${copy.way} budget=${copy.budget}` : run.schedule;
}

const groupKey = (run: Run) => JSON.stringify(copyOf(run) ? { ...run.variant, schedule: lineOf(run) } : run.variant);

// The words of a line, of which the first is its name.
function wordsOf(line: string): string[] {
  const copy = /^(?:price|waterfill) (?:shuffled|replayed)\b/.exec(line)?.[0];
  return copy ? [copy, ...line.slice(copy.length + 1).split(" ")] : line.split(" ");
}

// What a critical period is about, in numbers alone.
const periodText = (words: string) =>
  words
    .replace(/\bsteps=(\d+)/, "$1")
    .replace(/^window\b(.*) from=(\d+) to=\2$/, "no window$1")
    .replace(/\bfrom=(\d+) to=(\d+)/, "$1–$2");

// The words of a schedule's line that tell it from others of its name: "CR 3:8 n=8 grad=8" is "CR" where no other
// CR is there. Static bits, and what a critical period is about, are always said.
function shortLines(lines: string[]): Map<string, string> {
  const short = new Map<string, string>();
  for (const sameName of collect([...new Set(lines)], (line) => wordsOf(line)[0]).values()) {
    const words = sameName.map(wordsOf);
    for (const [i, own] of words.entries()) {
      const kept = own.filter((word, at) => {
        if (at === 0 || (at === 1 && own[0] === "static")) return true;
        if (/^(steps|from|to)=/.test(word)) return true;
        return !words.every((other) => other.includes(word));
      });
      short.set(sameName[i], periodText(kept.join(" ")));
    }
  }
  return short;
}

// Keys of the recipe in which runs of one schedule's line differ, such as steps=500.
export function differingKeys(runs: Run[]): string[] {
  const keys = new Set(runs.flatMap((run) => Object.keys(run.variant)));
  keys.delete("schedule");
  return [...keys].filter((key) => new Set(runs.map((run) => JSON.stringify(run.variant[key]))).size > 1);
}

export const valueText = (value: unknown) => (Array.isArray(value) ? value.join(",") : String(value)) || "none";

const isCritical = (line: string) => /^(deficit|window)\b/.test(line);

// Baselines first, critical periods last, and by name.
const order = ["fp32", "static", "", "deficit", "window"];
const rank = (line: string) => order.indexOf(order.includes(line.split(" ")[0]) ? line.split(" ")[0] : "");

function makeGroups(runs: Run[]): Group[] {
  const short = shortLines(runs.map(lineOf));
  const differing = differingKeys(runs).filter((name) => name !== "steps");
  // Runs of several lengths are told apart wherever they are named; those of critical periods have each their own, and at
  // equal cost all but the shorter ones have the same.
  const lengths = new Set(runs.filter((run) => !isCritical(run.schedule)).map((run) => run.total_steps));
  const equalCost = runs.some((run) => / budget=/.test(run.schedule));
  const saysLength = (of: Run) =>
    isCritical(of.schedule) || equalCost
      ? runs.some((run) => lineOf(run) === lineOf(of) && run.total_steps !== of.total_steps)
      : lengths.size > 1;
  const groups = [...collect(runs, groupKey)].map(([key, members]): Group => {
    const first = members[0],
      line = lineOf(first);
    const variant = differing
      .filter((name) =>
        runs.some(
          (run) =>
            lineOf(run) === line &&
            JSON.stringify(run.variant[name]) !== JSON.stringify(first.variant[name]),
        ),
      )
      .map((name) => `${name}=${valueText(first.variant[name])}`);
    const finished = members.filter((run) => run.result !== null);
    return {
      key,
      line,
      copy: copyOf(first),
      label: [
        short.get(line)!,
        ...variant,
        ...(saysLength(first) ? [`steps=${first.total_steps ?? "?"}`] : []),
      ].join(" "),
      index: 0,
      runs: members.sort((a, b) => a.seed - b.seed || a.id - b.id),
      finished,
      steps: first.total_steps,
    };
  });
  groups.sort((a, b) => rank(a.line) - rank(b.line) || a.label.localeCompare(b.label, "en", { numeric: true }));
  groups.forEach((group, index) => (group.index = index));
  return groups;
}

export function makeExperiments(runs: Run[]): Experiment[] {
  const keyOf = (run: Run) => [run.model, run.data, lastPart(run.data_dir), run.metric].join("\n");
  return [...collect(runs, keyOf)]
    .map(([key, members]): Experiment => {
      const { model, data, data_dir, metric } = members[0];
      return {
        key,
        label: `${model} on ${lastPart(data_dir) || data}`,
        metric,
        runs: members,
        groups: makeGroups(members),
      };
    })
    .sort((a, b) => b.runs.length - a.runs.length || a.label.localeCompare(b.label));
}

// What is compared by cost. Critical periods have a figure of their own, unless there is nothing else.
export function comparedGroups({ groups }: Experiment): Group[] {
  const others = groups.filter((group) => !isCritical(group.line));
  return others.some((group) => group.finished.length > 0) ? others : groups;
}

// The groups that no other beats in both cost and metric, from the cheapest to the dearest.
export function paretoFront(groups: Group[], split: Split, metric: string, measure: Measure): Group[] {
  const sign = lowerIsBetter(metric) ? -1 : 1;
  const value = (group: Group) => sign * groupStatistics(group, split)!.mean;
  const cost = (group: Group) => groupCost(group, measure);
  const known = groups.filter((group) => groupStatistics(group, split) && Number.isFinite(cost(group)));
  known.sort((a, b) => cost(a) - cost(b) || value(b) - value(a));
  const front: Group[] = [];
  let best = -Infinity;
  for (const group of known) {
    if (value(group) <= best) continue;
    best = value(group);
    front.push(group);
  }
  return front;
}

// Runs of another length are no competitors: each length has a front of its own.
export function fronts(experiment: Experiment, split: Split, measure: Measure): Group[][] {
  const byLength = collect(comparedGroups(experiment), (group) => String(group.steps));
  return [...byLength.values()].map((groups) => paretoFront(groups, split, experiment.metric, measure));
}

// What must be known of runs that are shown together; nothing where they are alike.
export function mixtureWarning(experiment: Experiment): string {
  return [lengthsWarning(experiment), foldersWarning(experiment)].filter(Boolean).join(" ");
}

function foldersWarning({ runs }: Experiment): string {
  const folders = [...new Set(runs.map((run) => run.data_dir))];
  return folders.length > 1 ? `Data of one name is taken for the same, though it lay in ${folders.join(" and in ")}.` : "";
}

function lengthsWarning(experiment: Experiment): string {
  const lengths = new Set(comparedGroups(experiment).map((group) => group.steps));
  if (lengths.size < 2) return "";
  const known = [...lengths].map((steps) => steps ?? NaN).sort((a, b) => a - b);
  const texts = known.map((steps) => (Number.isNaN(steps) ? "unknown" : grouped(steps)));
  return `These runs are of different lengths (${texts.join(", ")} steps). Each length has a front of its own, and a saving is told against static training of the same length.`;
}
