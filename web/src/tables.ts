// The tables: groups, runs, and folders that are neither.

import type { Context } from "./context";
import { element } from "./dom";
import { costText, durationText, grouped, lowerIsBetter, metricText, spreadText } from "./format";
import {
  comparedGroups,
  groupStatistics,
  metricOf,
  paretoFront,
  statistics,
  type Group,
  type Run,
  type Split,
} from "./runs";
import type { Skipped } from "./store";
import { Table, type TableColumn } from "./table";

// What it costs less than static training at its own highest bits, where such a run is there.
function saving(context: Context, group: Group): number {
  const high = group.runs[0].spec.high;
  const peer = context.experiment.groups.find(
    (other) => other.runs[0].spec.name === "static" && other.runs[0].spec.high === high,
  );
  return peer && peer !== group && group.runs[0].spec.name !== "fp32" ? 1 - group.cost / peer.cost : NaN;
}

const percent = (value: number) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)} %` : "–");

function swatch(context: Context, group: Group, text: string): Node {
  return element(
    "span",
    { class: "named", style: `--chip: ${context.look.get(group.key)?.color ?? "currentColor"}`, title: group.line },
    text,
  );
}

function groupColumns(context: Context): TableColumn<Group>[] {
  const { metric } = context.experiment;
  const front = new Set(paretoFront(comparedGroups(context.experiment), context.split, metric));
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
    statistics(group.finished.map((run) => value(run) ?? NaN))?.mean ?? NaN;
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
      key: "relative_cost",
      title: "Cost",
      numeric: true,
      value: (group) => group.cost,
      text: (group) => costText(group.cost),
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
    note: "Means over finished runs that differ in nothing but the seed, ± one standard deviation. Cost is bit operations relative to fp32; saving is against static training at the schedule's highest bits.",
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

function runColumns(context: Context): TableColumn<Run>[] {
  const { metric, groups } = context.experiment;
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
    number("relative_cost", "Cost", (run) => run.result?.relative_cost ?? run.last.relative_cost, costText),
    number("gbitops_paper", "GBitOps, paper", (run) => run.result?.gbitops?.paper, grouped),
    number("gbitops_actual", "actual", (run) => run.result?.gbitops?.actual, grouped),
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
