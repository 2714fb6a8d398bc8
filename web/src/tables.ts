// The tables: groups, runs, and folders that are neither.

import type { Context } from "./context";
import { element } from "./dom";
import { costText, durationText, grouped, lowerIsBetter, metricText, spreadText } from "./format";
import {
  fronts,
  groupMean,
  groupStatistics,
  mixtureWarning,
  metricOf,
  relativeCost,
  type Count,
  type Group,
  type Run,
  type Split,
} from "./runs";
import type { Skipped } from "./store";
import { Table, type TableColumn } from "./table";

// All of a recipe but its schedule.
const restOf = ({ schedule: _, ...rest }: Run["variant"]) => JSON.stringify(rest);

// What it costs less than the same training at the highest bits that occur in it, where such a run is there.
function saving(context: Context, group: Group): number {
  const { spec, variant } = group.runs[0];
  const { count } = context.measure;
  const peer = context.experiment.groups.find(
    (other) => other.line === spec.static && restOf(other.runs[0].variant) === restOf(variant),
  );
  if (!peer || peer === group) return NaN;
  return 1 - groupMean(group, (run) => relativeCost(run, count)) / groupMean(peer, (run) => relativeCost(run, count));
}

const percent = (value: number) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)} %` : "–");

function swatch(context: Context, group: Group, text: string): Node {
  return element(
    "span",
    {
      class: "named",
      style: `--chip: ${context.look.get(group.key)?.color ?? "currentColor"}`,
      title: text === group.line ? text : `${text}\n${group.line}`,
    },
    text,
  );
}

function groupColumns(context: Context): TableColumn<Group>[] {
  const { metric } = context.experiment;
  const { count } = context.measure;
  const front = new Set(fronts(context.experiment, context.split, context.measure).flat());
  const measured = (split: Split, title: string): TableColumn<Group> => ({
    key: split,
    title,
    numeric: true,
    value: (group) => groupStatistics(group, split)?.mean ?? NaN,
    text: (group) => {
      const known = groupStatistics(group, split);
      if (!known) return "–";
      return metricText(metric, known.mean) + (known.count > 1 ? ` ± ${spreadText(metric, known.deviation)}` : "");
    },
  });
  const mean = (group: Group, value: (run: Run) => number | undefined) =>
    groupMean(group, (run) => value(run) ?? NaN);
  return [
    {
      key: "schedule",
      title: "Schedule",
      value: (group) => group.label,
      render: (group) => swatch(context, group, group.label),
    },
    {
      key: "seeds",
      title: "Runs",
      numeric: true,
      value: (group) => group.runs.length,
      text: (group) =>
        group.finished.length === group.runs.length
          ? String(group.runs.length)
          : `${group.finished.length} of ${group.runs.length}`,
    },
    measured("test", `Test ${metric}`),
    measured("valid", "Held out"),
    {
      key: `relative_cost_${count}`,
      title: `Cost, ${count}`,
      numeric: true,
      value: (group) => groupMean(group, (run) => relativeCost(run, count)),
      text: (group) => costText(groupMean(group, (run) => relativeCost(run, count))),
    },
    {
      key: "saving",
      title: "Saving",
      numeric: true,
      value: (group) => saving(context, group),
      text: (group) => percent(saving(context, group)),
    },
    {
      key: "gbitops_paper",
      title: "GBitOps, paper",
      numeric: true,
      value: (group) => mean(group, (run) => run.result?.gbitops?.paper),
      text: (group) => grouped(mean(group, (run) => run.result?.gbitops?.paper)),
    },
    {
      key: "gbitops_actual",
      title: "actual",
      numeric: true,
      value: (group) => mean(group, (run) => run.result?.gbitops?.actual),
      text: (group) => grouped(mean(group, (run) => run.result?.gbitops?.actual)),
    },
    {
      key: "seconds",
      title: "Time",
      numeric: true,
      value: (group) => mean(group, (run) => run.result?.seconds),
      text: (group) => durationText(mean(group, (run) => run.result?.seconds)),
    },
    {
      key: "front",
      title: "Front",
      value: (group) => (front.has(group) ? "yes" : ""),
      text: (group) => (front.has(group) ? "on it" : ""),
    },
  ];
}

export const groupsTable = (context: Context) =>
  new Table<Group>({
    id: "groups",
    title: "By schedule",
    note: "Means over finished runs that differ in nothing but the seed, ± one standard deviation. Cost is bit operations relative to fp32, in the count chosen at the top; saving is against the same training at the highest bits that occur in the schedule.",
    warning: () => mixtureWarning(context.experiment),
    columns: () => groupColumns(context),
    rows: () => [...context.experiment.groups],
    keyOf: (group) => group.key,
    sorted: { key: "test", descending: !lowerIsBetter(context.experiment.metric) },
    what: ["schedule", "schedules"],
  });

function stateText(context: Context, run: Run): string {
  if (run.result) return "finished";
  const step = run.last.step;
  const of = run.total_steps ? ` of ${grouped(run.total_steps)}` : "";
  const progress = step === null || step === undefined ? "begun" : `step ${grouped(step)}${of}`;
  const recent = context.store.live && run.changed !== undefined && Date.now() / 1000 - run.changed < 120;
  return `${recent ? "running" : "unfinished"}, ${progress}`;
}

// Of an unfinished run by its last line, which in old runs knows the papers' count alone.
function costSoFar(run: Run, count: Count): number {
  if (run.result) return relativeCost(run, count);
  const { relative_cost, gbitops_paper, gbitops_actual } = run.last;
  if (count === "paper") return relative_cost ?? NaN;
  return ((relative_cost ?? NaN) * (gbitops_actual ?? NaN)) / (gbitops_paper ?? NaN);
}

function runColumns(context: Context): TableColumn<Run>[] {
  const { metric, groups } = context.experiment;
  const { count } = context.measure;
  const groupOf = new Map(groups.flatMap((group) => group.runs.map((run) => [run.id, group] as const)));
  const number = (
    key: string,
    title: string,
    value: (run: Run) => number | null | undefined,
    text: (value: number | null | undefined) => string,
  ): TableColumn<Run> => ({ key, title, numeric: true, value, text: (run) => text(value(run)) });
  return [
    {
      key: "run",
      title: "Run",
      value: (run) => run.name,
      render: (run) => swatch(context, groupOf.get(run.id)!, run.name),
    },
    { key: "schedule", title: "Schedule", value: (run) => run.schedule },
    { key: "seed", title: "Seed", numeric: true, value: (run) => run.seed },
    { key: "state", title: "State", value: (run) => stateText(context, run) },
    number(
      "test",
      `Test ${metric}`,
      (run) => metricOf(run, "test"),
      (value) => metricText(metric, value),
    ),
    number(
      "valid",
      "Held out",
      (run) => metricOf(run, "valid"),
      (value) => metricText(metric, value),
    ),
    number(`relative_cost_${count}`, `Cost, ${count}`, (run) => costSoFar(run, count), costText),
    number("gbitops_paper", "GBitOps, paper", (run) => run.result?.gbitops?.paper ?? run.last.gbitops_paper, grouped),
    number("gbitops_actual", "actual", (run) => run.result?.gbitops?.actual ?? run.last.gbitops_actual, grouped),
    number("seconds", "Time", (run) => run.result?.seconds ?? run.last.seconds, durationText),
    number("steps", "Steps", (run) => run.result?.steps ?? run.last.step, grouped),
    { key: "path", title: "Folder", value: (run) => run.path },
  ];
}

export const runsTable = (context: Context) =>
  new Table<Run>({
    id: "runs",
    title: "Runs",
    columns: () => runColumns(context),
    rows: () => [...context.experiment.runs],
    keyOf: (run) => String(run.id),
    sorted: { key: "run", descending: false },
    what: ["run", "runs"],
  });

export const skippedTable = (context: Context) =>
  new Table<Skipped>({
    id: "skipped",
    title: "Skipped",
    note: "Folders that were looked at and are not in this report.",
    columns: () => [
      { key: "folder", title: "Folder", value: (folder) => folder.path },
      { key: "reason", title: "Why", value: (folder) => folder.reason },
    ],
    rows: () => [...context.store.skipped],
    keyOf: (folder) => folder.path,
    sorted: { key: "folder", descending: false },
    what: ["folder", "folders"],
  });
