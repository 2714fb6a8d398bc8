// Where the page's data comes from: the page itself, or the program that serves it.

import { append, decode, fromBase64, type Tables } from "./columns";
import type { CostAxis, Count, Measure, Run } from "./runs";

export interface Skipped {
  path: string;
  reason: string;
}

// As `lowtide study status --json` has it.
export interface StudyMember {
  index: number;
  member: string; // its folder in the study's
  state: "waiting" | "running" | "saved" | "done" | "failed";
  step: number;
  steps: number;
  seconds: number;
  host?: string; // where it runs
  note?: string; // by which process; or why it failed
}

export interface Study {
  name: string;
  path: string;
  kind?: string;
  left?: number | null; // seconds
  members?: StudyMember[];
  problem?: string; // why there are none
}

export interface Store {
  live: boolean;
  made: string | null;
  program: string | null;
  measure: Measure; // what runs are compared by at first
  runs: Map<number, Run>;
  skipped: Skipped[];
  studies: Study[]; // while it is served
  schedules: Map<string, [number, number][] | null>; // runs of [bits, steps], by bitRunsKey
  problem: string | null; // why nothing new arrives
  tables: Map<number, Tables>; // of the runs that were asked for
  load(ids: number[]): void; // asks for the lines of runs; `changed` is called as they arrive
  loadAll(ids: number[]): Promise<void>;
}

interface Index {
  program: string;
  made: string;
  count: Count;
  axis: CostAxis;
  runs: Run[];
  skipped: Skipped[];
  schedules: Record<string, [number, number][] | null>;
}

interface Changes {
  revision: number;
  ids: number[];
  runs: Run[];
  skipped: Skipped[];
  schedules: Record<string, [number, number][] | null>;
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// The lines of a run are in an element of their own, behind the script: a large page is drawn while the rest of it is
// still being read. An element is whole when another follows, or the page has been read.
async function embeddedLines(id: number): Promise<Tables> {
  const whole = () => document.getElementById(`rows-${id + 1}`) !== null || document.readyState !== "loading";
  while (!whole()) await pause(20);
  const element = document.getElementById(`rows-${id}`);
  return (await decode(fromBase64(element?.textContent ?? ""))).tables;
}

function embeddedStore(index: Index, changed: (news: News) => void): Store {
  const pending = new Map<number, Promise<void>>();
  let queue: Promise<void> = Promise.resolve();
  const store: Store = {
    live: false,
    made: index.made,
    program: index.program,
    measure: { count: index.count, axis: index.axis },
    runs: new Map(index.runs.map((run) => [run.id, run])),
    skipped: index.skipped,
    studies: [],
    schedules: new Map(Object.entries(index.schedules)),
    problem: null,
    tables: new Map(),
    load(ids) {
      ids.forEach(loadOne);
    },
    async loadAll(ids) {
      await Promise.all(ids.map(loadOne));
    },
  };
  const unpack = async (id: number) => {
    store.tables.set(id, await embeddedLines(id));
    changed("lines");
    await pause(0);
  };
  // One after the other, with a breath between: the page goes on answering.
  const loadOne = (id: number): Promise<void> => {
    const begun = pending.get(id);
    if (begun) return begun;
    queue = queue.then(() => unpack(id));
    pending.set(id, queue);
    return queue;
  };
  return store;
}

const pollEvery = 1000; // milliseconds

function liveStore(changed: (news: News) => void): Store {
  const wanted = new Set<number>();
  const known = new Map<number, { generation: number; end: number }>();
  const store: Store = {
    live: true,
    made: null,
    program: null,
    measure: { count: "actual", axis: "bitops" },
    runs: new Map(),
    skipped: [],
    studies: [],
    schedules: new Map(),
    problem: null,
    tables: new Map(),
    load(ids) {
      const fresh = ids.filter((id) => !wanted.has(id));
      for (const id of fresh) wanted.add(id);
      for (const id of fresh) void follow(id);
    },
    async loadAll(ids) {
      for (const id of ids) {
        wanted.add(id);
        await follow(id);
      }
    },
  };
  // The lines of a run that are not here yet.
  const follow = async (id: number): Promise<void> => {
    const run = store.runs.get(id);
    const have = known.get(id) ?? { generation: 0, end: 0 };
    if (!run || (run.generation === have.generation && run.end === have.end)) return;
    const response = await fetch(`api/lines?run=${id}&generation=${have.generation}&from=${have.end}`);
    if (!response.ok) return; // it went away, or was replaced: the next look tells
    const { header, tables } = await decode(new Uint8Array(await response.arrayBuffer()));
    const before = store.tables.get(id);
    store.tables.set(id, header.from === 0 || !before ? tables : append(before, tables));
    known.set(id, { generation: header.generation!, end: header.end! });
    changed("lines");
  };
  // Whether there is anything new in them.
  const take = (changes: Changes): boolean => {
    const there = new Set(changes.ids);
    const same =
      changes.runs.length === 0 &&
      store.problem === null &&
      there.size === store.runs.size &&
      JSON.stringify(changes.skipped) === JSON.stringify(store.skipped);
    for (const id of store.runs.keys()) if (!there.has(id)) store.runs.delete(id);
    for (const run of changes.runs) store.runs.set(run.id, run);
    for (const [key, runs] of Object.entries(changes.schedules)) store.schedules.set(key, runs);
    store.skipped = changes.skipped;
    store.problem = null;
    return !same;
  };
  const followStudies = async () => {
    const response = await fetch("api/studies");
    if (!response.ok) return;
    const studies: Study[] = await response.json();
    if (JSON.stringify(studies) === JSON.stringify(store.studies)) return;
    store.studies = studies;
    changed("runs");
  };
  const poll = async () => {
    let revision = 0;
    for (;;) {
      try {
        const response = await fetch(`api/runs?since=${revision}`);
        if (!response.ok) throw new Error(await response.text());
        const changes: Changes = await response.json();
        revision = changes.revision;
        if (take(changes)) changed("runs");
        await followStudies();
        for (const id of wanted) await follow(id);
      } catch {
        if (store.problem === null) changed("runs");
        store.problem = "the program that serves this page does not answer";
      }
      await pause(pollEvery);
    }
  };
  void poll();
  return store;
}

// What arrived: something of the runs, or lines that were asked for.
export type News = "runs" | "lines";

export function openStore(changed: (news: News) => void): Store {
  const index = document.getElementById("report");
  return index ? embeddedStore(JSON.parse(index.textContent!), changed) : liveStore(changed);
}
