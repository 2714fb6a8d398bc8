// The best of the ten at a budget, as `lowtide study analyze` picks it: on each seed the one that is best on all others, by held-out
// items where every run has some, so that it does not win on the seeds that made it the best.

import type { Entry } from "./equal_cost";
import { lowerIsBetter } from "./format";
import { adjust, pairedDifference, type Difference } from "./paired";
import { metricOf, type Split } from "./runs";

const fewestSeeds = 3;

export interface BestOfTen {
  budget: number;
  picks: Map<number, string>; // by the seed that each is tested on
  by: Split; // what they are picked by
  difference: Difference; // from constant
  others: Map<Entry, Difference>; // of the other ways at this budget, from it
}

// As a recipe has them: where some have other parameters too, those with the parameters that most have.
function tenOf(entries: Entry[]): Entry[] {
  const parameters = ({ group: { line } }: Entry) => line.replace(/^\w+| (k|c|budget)=[\d.]+/g, "");
  const ten = entries.filter(({ family }) => family === "ten");
  const having = (words: string) => ten.filter((entry) => parameters(entry) === words);
  return ten
    .map((entry) => having(parameters(entry)))
    .reduce((most, some) => (some.length > most.length ? some : most), []);
}

const valuesOf = ({ group }: Entry, split: Split) =>
  new Map(group.finished.map((run): [number, number] => [run.seed, metricOf(run, split)]));

const meanOver = (values: Map<number, number>, seeds: number[]) =>
  seeds.reduce((sum, seed) => sum + values.get(seed)!, 0) / seeds.length;

function pickAndTest(ten: Entry[], entries: Entry[], metric: string, split: Split): BestOfTen | null {
  const constant = entries.find(({ family }) => family === "constant");
  if (ten.length === 0 || !constant) return null;
  const tested = new Map(entries.map((entry) => [entry, valuesOf(entry, split)]));
  const seeds = [...tested.get(constant)!.keys()].filter((seed) => ten.every((one) => tested.get(one)!.has(seed)));
  if (seeds.length < fewestSeeds) return null;
  const by: Split = ten.every(({ group }) => group.finished.every((run) => run.result?.valid != null)) ? "valid" : "test";
  const judged = new Map(ten.map((one) => [one, valuesOf(one, by)]));
  const sign = lowerIsBetter(metric) ? -1 : 1;
  const bestOn = (some: number[]) =>
    ten.reduce((best, one) =>
      sign * (meanOver(judged.get(one)!, some) - meanOver(judged.get(best)!, some)) > 0 ? one : best,
    );
  const picked = seeds.map((seed): [number, Entry] => [seed, bestOn(seeds.filter((other) => other !== seed))]);
  const values = new Map(picked.map(([seed, one]) => [seed, tested.get(one)!.get(seed)!]));
  const others = entries.filter((entry) => !ten.includes(entry) && !["constant", "copies"].includes(entry.family));
  return {
    budget: constant.budget,
    picks: new Map(picked.map(([seed, one]) => [seed, one.way])),
    by,
    difference: pairedDifference(values, tested.get(constant)!),
    others: new Map(
      others
        .map((entry): [Entry, Difference] => [entry, pairedDifference(tested.get(entry)!, values)])
        .filter(([, { pairs }]) => pairs > 0),
    ),
  };
}

// At each budget where the ten have the seeds for it. Whether the best beats constant is one question, whether another way beats the
// best a second: p are adjusted for each by itself.
export function bestOfTen(entries: Entry[], metric: string, split: Split): BestOfTen[] {
  const budgets = [...new Set(entries.map(({ budget }) => budget))].filter((budget) => budget < 1);
  const ten = tenOf(entries);
  const found = budgets.flatMap((budget) => {
    const here = (entry: Entry) => entry.budget === budget;
    return pickAndTest(ten.filter(here), entries.filter(here), metric, split) ?? [];
  });
  adjust(found.map(({ difference }) => difference));
  adjust(found.flatMap(({ others }) => [...others.values()]));
  return found;
}

// "CR on seeds 1, 3, RR on seed 2"
export function picksText({ picks }: BestOfTen): string {
  const ways = [...new Set(picks.values())];
  if (ways.length === 1) return ways[0];
  return ways
    .map((way) => {
      const seeds = [...picks].flatMap(([seed, picked]) => (picked === way ? seed : []));
      return `${way} on seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}`;
    })
    .join(", ");
}
