// Studies that go on, on whichever machines: who trains what, how fast, and until when.

import type { Context } from "./context";
import { durationText, grouped, plural, significant } from "./format";
import type { Run } from "./runs";
import type { Study, StudyMember } from "./store";
import { Table, type TableColumn } from "./table";

interface Row {
  study: Study;
  member: StudyMember;
  run?: Run; // where it has begun
}

const members = (study: Study) => study.members ?? [];
const running = (study: Study) => members(study).filter((member) => member.state === "running");

// Of one that is done the other sections tell.
const goesOn = (study: Study) => members(study).some((member) => member.state !== "done");

const stepsPerSecond = ({ step, seconds }: StudyMember) => (seconds > 0 ? step / seconds : NaN);

const sum = (values: (number | null | undefined)[]) =>
  values.reduce<number>((total, value) => total + (Number.isFinite(value) ? value! : 0), 0);

const runsByPath = (context: Context) => new Map([...context.store.runs.values()].map((run) => [run.path, run]));

function clock(seconds: number): string {
  const end = new Date(Date.now() + 1000 * seconds);
  const time = end.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return seconds < 20 * 3600 ? time : `${end.toLocaleDateString("en-GB", { day: "numeric", month: "long" })}, ${time}`;
}

function summary(study: Study, runs: Map<string, Run>): string {
  if (study.problem) return `${study.name}: ${study.problem}`;
  const all = members(study);
  const going = running(study);
  const failed = all.filter((member) => member.state === "failed").length;
  const hosts = new Set(going.map((member) => member.host).filter(Boolean)).size;
  const items = sum(going.map((member) => runs.get(`${study.path}/${member.member}`)?.last.items_per_s));
  const parts = [
    `${study.name}: ${grouped(all.filter((member) => member.state === "done").length)} of ${plural(all.length, "run")} done`,
    ...(failed ? [`${grouped(failed)} failed`] : []),
    ...(going.length
      ? [`${grouped(going.length)} running on ${plural(Math.max(hosts, 1), "machine")}`]
      : all.every((member) => member.state === "done" || member.state === "failed")
        ? []
        : ["none running"]),
    ...(going.some((member) => member.seconds > 0)
      ? [`${significant(sum(going.map(stepsPerSecond)), 3)} steps/s` + (items ? `, ${grouped(items)} items/s` : "")]
      : []),
    ...(study.left ? [`about ${durationText(study.left)} left, until ${clock(study.left)}`] : []),
  ];
  return parts.join(" · ");
}

function columns(several: boolean): TableColumn<Row>[] {
  return [
    { key: "member", title: "Run", value: ({ member }) => member.member },
    ...(several ? [{ key: "study", title: "Study", value: ({ study }: Row) => study.name }] : []),
    { key: "index", title: "Index", numeric: true, value: ({ member }) => member.index },
    { key: "state", title: "State", value: ({ member }) => member.state },
    {
      key: "step",
      title: "Steps",
      numeric: true,
      value: ({ member }) => member.step,
      text: ({ member }) => `${grouped(member.step)} of ${grouped(member.steps)}`,
    },
    {
      key: "seconds",
      title: "Time",
      numeric: true,
      value: ({ member }) => member.seconds,
      text: ({ member }) => (member.seconds > 0 ? durationText(member.seconds) : "–"),
    },
    {
      key: "steps_per_s",
      title: "Steps/s",
      numeric: true,
      value: ({ member }) => stepsPerSecond(member),
      text: ({ member }) => significant(stepsPerSecond(member), 3),
    },
    {
      key: "items_per_s",
      title: "Items/s",
      numeric: true,
      value: ({ member, run }) => (member.state === "running" ? run?.last.items_per_s : null),
      text: ({ member, run }) => grouped(member.state === "running" ? run?.last.items_per_s : null),
    },
    { key: "note", title: "Where, or why", value: ({ member }) => member.note ?? "" },
  ];
}

export const studiesTable = (context: Context) =>
  new Table<Row>({
    id: "studies",
    title: "Studies",
    summary: () => {
      const runs = runsByPath(context);
      return context.store.studies.map((study) => summary(study, runs));
    },
    columns: () => columns(context.store.studies.length > 1),
    rows: () => {
      const runs = runsByPath(context);
      return context.store.studies.filter(goesOn).flatMap((study) =>
        members(study).map((member) => ({ study, member, run: runs.get(`${study.path}/${member.member}`) })),
      );
    },
    keyOf: ({ study, member }) => `${study.path}/${member.member}`,
    sorted: { key: "index", descending: false },
    what: ["run", "runs"],
  });
