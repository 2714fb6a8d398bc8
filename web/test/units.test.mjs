// Pieces of the page by themselves.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

async function load(name) {
  const entry = fileURLToPath(new URL(`../src/${name}.ts`, import.meta.url));
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, write: false, format: "esm" });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

const { thin, nearestIndex } = await load("thin");
const { makeExperiments, paretoFront, statistics } = await load("runs");
const { csvLine } = await load("export");
const { metricText, durationText, lowerIsBetter } = await load("format");

test("thinning keeps the extremes, the mean and the order", () => {
  const count = 100_000;
  const x = Float64Array.from({ length: count }, (_, i) => i);
  const y = Float64Array.from(x, (i) => Math.sin(i) + (i === 4321 ? 50 : 0) - (i === 98765 ? 70 : 0));
  const { x: at, mean, low, high } = thin(x, y, 0, count - 1, 500);
  assert.equal(at.length, 500);
  assert.equal(Math.max(...high), y[4321]);
  assert.equal(Math.min(...low), y[98765]);
  for (let i = 0; i < at.length; ++i) assert.ok(low[i] <= mean[i] && mean[i] <= high[i]);
  for (let i = 1; i < at.length; ++i) assert.ok(at[i] > at[i - 1]);
});

test("few points stay themselves, what is no number is left out", () => {
  const x = Float64Array.of(10, 20, 30, 40),
    y = Float64Array.of(1, NaN, 3, 4);
  const { x: at, mean, low, high } = thin(x, y, 15, 40, 1000);
  assert.deepEqual([...at], [30, 40]);
  assert.deepEqual([...mean], [3, 4]);
  assert.deepEqual([...low], [...high]);
  assert.equal(thin(x, y, 100, 200, 10).x.length, 0);
  assert.deepEqual([...thin(x, y, 10, 10, 10).mean], [1], "a window of no width");
});

test("the nearest of a sorted list", () => {
  const x = Float64Array.of(0, 10, 20);
  assert.deepEqual(
    [-5, 4, 6, 15.1, 99].map((value) => nearestIndex(x, value)),
    [0, 0, 1, 2, 2],
  );
});

const run = (schedule, seed, result, variant = {}) => ({
  id: Math.random(),
  name: `${schedule} ${seed}`,
  schedule,
  seed,
  model: "net",
  data: "idx",
  data_dir: "/data/digits",
  metric: "accuracy",
  spec: { name: schedule.split(" ")[0] },
  variant: { schedule, ...variant },
  result,
});
const scored = (test_, relative_cost) => ({ test: test_, valid: null, relative_cost });

test("seeds of one recipe are one group, named in short", () => {
  const runs = [
    run("CR 3:8 n=8 grad=8", 2, scored(0.9, 0.04)),
    run("CR 3:8 n=8 grad=8", 1, scored(0.8, 0.04)),
    run("CR 3:8 n=32 grad=8", 1, scored(0.8, 0.04)),
    run("RR 3:8 n=8 grad=8", 1, null, { steps: 100 }),
    run("RR 3:8 n=8 grad=8", 1, null, { steps: 200 }),
    run("static 8 grad=8", 1, null),
    run("window 3:8 grad=8 from=10 to=20", 1, null),
    run("window 3:8 grad=8 from=0 to=0", 1, null),
  ];
  const [experiment] = makeExperiments(runs);
  assert.equal(experiment.label, "net on digits");
  assert.deepEqual(
    experiment.groups.map((group) => group.label),
    ["static 8", "CR n=8", "CR n=32", "RR steps=100", "RR steps=200", "no window", "window 10–20"],
  );
  assert.deepEqual(
    experiment.groups[1].runs.map(({ seed }) => seed),
    [1, 2],
  );
});

test("models and metrics are kept apart", () => {
  const words = { ...run("fp32", 1, null), model: "lstm", metric: "perplexity" };
  assert.deepEqual(
    makeExperiments([run("fp32", 1, null), words])
      .map(({ metric }) => metric)
      .sort(),
    ["accuracy", "perplexity"],
  );
});

test("the front, where more is better and where less is", () => {
  const runs = [
    run("A", 1, scored(10, 0.1)),
    run("B", 1, scored(12, 0.2)),
    run("C", 1, scored(11, 0.3)),
    run("D", 1, scored(12, 0.4)),
  ];
  const [{ groups }] = makeExperiments(runs);
  const front = (metric) => paretoFront(groups, "test", metric).map(({ line }) => line);
  assert.deepEqual(front("accuracy"), ["A", "B"], "D costs more than B for the same");
  assert.deepEqual(front("perplexity"), ["A"]);
  assert.ok(lowerIsBetter("perplexity") && !lowerIsBetter("accuracy") && !lowerIsBetter("mAP"));
});

test("deviation is that of a sample", () => {
  assert.deepEqual(statistics([1, 3]), { mean: 2, deviation: Math.SQRT2, count: 2 });
  assert.deepEqual(statistics([5, NaN]), { mean: 5, deviation: 0, count: 1 });
  assert.equal(statistics([NaN]), null);
});

test("cells of a CSV file", () => {
  assert.equal(
    csvLine(['say "a, b"', 0.1, NaN, null, undefined, "line\nbreak"]),
    '"say ""a, b""",0.1,,,,"line\nbreak"\n',
  );
});

test("numbers for people", () => {
  assert.equal(metricText("accuracy", 0.89163), "89.16 %");
  assert.equal(metricText("perplexity", 85.59), "85.59");
  assert.equal(metricText("accuracy", null), "–");
  assert.equal(durationText(3.21), "3.2 s");
  assert.equal(durationText(125), "2 min 5 s");
  assert.equal(durationText(3599.7), "1 h 0 min");
});
