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
const { fronts, mixtureWarning, makeExperiments, paretoFront, relativeCost, statistics } = await load("runs");
const { loggedRuns, placeOf, segmentsOf } = await load("bit_runs");
const { csvLine } = await load("export");
const { cellsHeld, cellsOf } = await load("layer_statistics");
const { entriesOf } = await load("equal_cost");
const { holm, pairedDifference, studentP, studentQuantile } = await load("paired");
const { bestOfTen, picksText } = await load("best_of_ten");
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
  total_steps: variant.steps ?? 1000,
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
// Of a network with 1,000 GBitOps in fp32.
const scored = (test_, relative_cost, actual = relative_cost, seconds = 1) => ({
  test: test_,
  valid: null,
  relative_cost,
  gbitops: { paper: 1000 * relative_cost, actual: 1000 * actual },
  seconds,
});
const bitops = { count: "actual", axis: "bitops" };

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
    [
      "static 8 steps=1000",
      "CR n=8 steps=1000",
      "CR n=32 steps=1000",
      "RR steps=100",
      "RR steps=200",
      "no window",
      "window 10–20",
    ],
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
  const front = (metric) => paretoFront(groups, "test", metric, bitops).map(({ line }) => line);
  assert.deepEqual(front("accuracy"), ["A", "B"], "D costs more than B for the same");
  assert.deepEqual(front("perplexity"), ["A"]);
  assert.ok(lowerIsBetter("perplexity") && !lowerIsBetter("accuracy") && !lowerIsBetter("mAP"));
});

test("the front is by the count or the time that is asked for", () => {
  const runs = [run("A", 1, scored(10, 0.1, 0.3, 5)), run("B", 1, scored(11, 0.2, 0.2, 9))];
  const [{ groups }] = makeExperiments(runs);
  const front = (measure) => paretoFront(groups, "test", "accuracy", measure).map(({ line }) => line);
  assert.deepEqual(front({ count: "paper", axis: "bitops" }), ["A", "B"]);
  assert.deepEqual(front({ count: "actual", axis: "bitops" }), ["B"]);
  assert.deepEqual(front({ count: "actual", axis: "time" }), ["A", "B"]);
  assert.ok(Math.abs(relativeCost(runs[0], "actual") - 0.3) < 1e-12);
  assert.equal(relativeCost(runs[0], "paper"), 0.1);
});

test("runs of another length are on a front of their own, and it is said", () => {
  const brief = run("CR", 1, scored(0.5, 0.01), { steps: 60 });
  const whole = [run("CR", 1, scored(0.9, 0.4)), run("RR", 1, scored(0.8, 0.5))];
  const lines = (runs) => fronts(makeExperiments(runs)[0], "test", bitops).map((front) => front.map((g) => g.label));
  assert.deepEqual(lines([...whole, brief]), [["CR steps=60"], ["CR steps=1000"]]);
  assert.match(mixtureWarning(makeExperiments([...whole, brief])[0]), /different lengths \(60, 1,000 steps\)/);
  assert.equal(mixtureWarning(makeExperiments(whole)[0]), "");
  const elsewhere = { ...run("CR", 2, scored(0.9, 0.4)), data_dir: "/elsewhere/digits" };
  assert.match(mixtureWarning(makeExperiments([...whole, elsewhere])[0]), /lay in \/data\/digits and in \/elsewhere/);
  const deficits = [run("deficit 3:8 steps=10", 1, null, { steps: 110 }), run("deficit 3:8 steps=20", 1, null, { steps: 120 })];
  assert.equal(mixtureWarning(makeExperiments([...whole, ...deficits])[0]), "", "which differ by what they are");
});

test("bits are drawn as the schedule has them, however seldom they are logged", () => {
  const step = Float64Array.of(100, 200),
    seconds = Float64Array.of(10, 40);
  const runs = [
    [3, 50],
    [8, 100],
    [0, 100],
  ];
  assert.deepEqual(segmentsOf(runs, step, step, 0, 200, 100), [
    { x1: 0, x2: 50, bits: 3 },
    { x1: 50, x2: 150, bits: 8 },
    { x1: 150, x2: 200, bits: 0 },
  ]);
  assert.deepEqual(
    segmentsOf(runs, step, seconds, 0, 40, 100).map(({ x1, x2 }) => [x1, x2]),
    [
      [0, 5],
      [5, 25],
      [25, 40],
    ],
    "on another axis by the straight line between two lines",
  );
  assert.deepEqual(segmentsOf(runs, step, step, 60, 120, 100), [{ x1: 60, x2: 120, bits: 8 }]);
  assert.equal(segmentsOf(runs, new Float64Array(), new Float64Array(), 0, 1, 100).length, 0);
  assert.equal(placeOf(step, seconds, 999), 40);
  const quick = Array.from({ length: 1000 }, (_, i) => [i % 2 ? 8 : 4, 1]);
  const means = segmentsOf(quick, Float64Array.of(1000), Float64Array.of(1000), 0, 1000, 10);
  assert.equal(means.length, 10);
  for (const { x1, x2, bits } of means) assert.deepEqual([x2 - x1, bits], [100, 6]);
});

test("a closed loop's bits are those of its lines", () => {
  const columns = new Map([
    ["step", Float64Array.of(40, 100, 130, 200)],
    ["bits", Float64Array.of(3, 4, 4, 6)],
  ]);
  assert.deepEqual(loggedRuns(new Map([["train", { rows: 4, columns }]])), [
    [3, 40],
    [4, 90],
    [6, 70],
  ]);
  assert.equal(loggedRuns(undefined), null);
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

test("of many looks at layers as many are shown as there is room for, the last among them", () => {
  const step = Float64Array.from({ length: 10 }, (_, i) => 10 * (i + 1));
  const columns = new Map([["step", step], ["a.b.clipped", step], ["a.b.sensitivity", step], ["c.clipped", step.map((s, i) => (i === 9 ? NaN : s))]]);
  const cells = cellsOf({ rows: 10, columns }, "clipped", 5);
  assert.deepEqual(cells.filter(({ layer }) => layer === "a.b").map((cell) => cell.step), [20, 40, 60, 80, 100]);
  assert.equal(cells.filter(({ layer }) => layer === "c").length, 4, "what is no number is left out");
});

test("bits of layers are shown at steps that lie evenly, as the line after them tells", () => {
  const step = Float64Array.from([100, 150, 151, 152, 200]);
  const columns = new Map([
    ["step", step],
    ["a.bits", Float64Array.from([4, NaN, 5, 6, 7])], // at 150 something else was told
    ["a.clipped", step],
  ]);
  const cells = cellsHeld({ rows: 5, columns }, "bits", 4);
  assert.deepEqual(cells, [50, 100, 150, 200].map((at, i) => ({ layer: "a", step: at, value: [4, 4, 5, 7][i] })));
  assert.deepEqual(cellsOf({ rows: 5, columns }, "bits", 2).map((cell) => cell.step), [151, 200], "of four that tell of bits");
});

test("differences are paired over the seeds that both have", () => {
  const ours = new Map([[1, 5], [2, 7], [3, 9], [4, 100]]),
    theirs = new Map([[1, 4], [2, 5], [3, 6], [9, 0]]);
  const { mean, half, pairs } = pairedDifference(ours, theirs);
  assert.deepEqual([mean, pairs], [2, 3]); // of 1, 2, 3
  assert.ok(Math.abs(half - 4.303 / Math.sqrt(3)) < 1e-12);
  assert.ok(Number.isNaN(pairedDifference(new Map([[1, 2]]), theirs).half), "one pair has no interval");
  assert.equal(pairedDifference(new Map([[7, 2]]), theirs).pairs, 0);
});

test("a loop's bits alone are one way to spend its budget, whatever tables they are and whatever they cost", () => {
  const named = (name, schedule, seed, result) => ({ ...run(schedule, seed, result, { "eval-bits": -1 }), name });
  const judged = (of) => ({ ...of, variant: { ...of.variant, "eval-bits": 8 } });
  const runs = [1, 2].flatMap((seed) => [
    named(`static-seed${seed}`, "static 8 grad=8", seed, scored(0.9, 0.0625)),
    named(`constant-0.63-seed${seed}`, "static 8 grad=8 budget=0.63", seed, scored(0.8, 0.63 * 0.0625)),
    named(`price-0.63-seed${seed}`, "price 3:8 grad=8 every=100 budget=0.63", seed, scored(0.85, 0.63 * 0.0625)),
    // By chance what two phases would be; and less dear by the probes.
    judged(named(`price-shuffled-0.63-seed${seed}`, `table 4x${500 + seed} 8x${500 - seed} grad=8`, seed, scored(0.7, 0.61 * 0.0625))),
    judged(named(`study/price-replayed-0.63-seed${seed}`, `table 5x900 8x${100 * seed} grad=8`, seed, scored(0.75, 0.6 * 0.0625))),
    named(`4-then-8-0.63-seed${seed}`, "table 4x700 8x300 grad=8", seed, scored(0.82, 0.63 * 0.0625)),
  ]);
  const [experiment] = makeExperiments(runs);
  const labels = experiment.groups.map(({ label }) => label);
  for (const label of ["price", "price replayed", "price shuffled"]) assert.ok(labels.includes(label), labels.join("; "));
  assert.equal(experiment.groups.length, 6, "each of two seeds");
  const entries = entriesOf({ experiment, split: "test" });
  assert.deepEqual(
    entries.map(({ budget, way, family, difference }) => [budget, way, family, difference && +difference.mean.toFixed(2)]),
    [
      [0.63, "price", "loops", 0.05],
      [0.63, "4 then 8", "phases", 0.02],
      [0.63, "constant", "constant", null],
      [0.63, "price replayed", "copies", -0.05],
      [0.63, "price shuffled", "copies", -0.1],
      [1, "static 8", "static", null],
    ],
  );
});

test("the best of the ten is picked on the seeds that it is not tested on", () => {
  const cost = 0.5 * 0.0625;
  const valid = { CR: [0.9, 0.5, 0.5], RR: [0.6, 0.6, 0.6], constant: [0.9, 0.9, 0.9], matched: [0.1, 0.1, 0.1] };
  const tests = { CR: [0.8, 0.82, 0.84], RR: [0.7, 0.75, 0.77], constant: [0.71, 0.8, 0.8], matched: [0.75, 0.85, 0.85] };
  const lines = {
    CR: "CR 3:8 n=8 grad=8 budget=0.5",
    RR: "RR 3:8 n=8 grad=8 c=0.9 budget=0.5",
    constant: "static 8 grad=8 budget=0.5",
    matched: "matched 3:8 grad=8 budget=0.5",
  };
  const runs = (names, seeds) =>
    names.flatMap((name) =>
      seeds.map((seed) =>
        run(lines[name], seed, { ...scored(tests[name][seed - 1], cost), valid: valid[name][seed - 1] }),
      ),
    );
  // Another CR, which is none of the recipe's ten, and would win.
  const other = [1, 2, 3].map((seed) => run("CR 3:8 n=2 grad=8 budget=0.5", seed, { ...scored(0.95, cost), valid: 0.95 }));
  const bestOf = (all) => {
    const [experiment] = makeExperiments(all);
    return bestOfTen(entriesOf({ experiment, split: "test" }), experiment.metric, "test");
  };
  const [best, ...more] = bestOf([...runs(Object.keys(lines), [1, 2, 3]), ...other]);
  assert.equal(more.length, 0);
  // Without seed 1 RR has 0.6 and CR 0.5; without another CR has 0.7.
  assert.deepEqual([...best.picks].map(([seed, way]) => [seed, way.split(" ")[0]]), [[1, "RR"], [2, "CR"], [3, "CR"]]);
  assert.equal(picksText(best), "RR on seed 1, CR n=8 on seeds 2, 3");
  assert.equal(best.by, "valid");
  assert.ok(Math.abs(best.difference.mean - (-0.01 + 0.02 + 0.04) / 3) < 1e-12);
  const others = [...best.others].map(([{ way }, { mean }]) => [way, +mean.toFixed(6)]);
  // From 0.70, 0.82, 0.84.
  assert.deepEqual(others, [["CR n=2", +((0.25 + 0.13 + 0.11) / 3).toFixed(6)], ["matched", 0.03]]);
  // Two degrees of freedom: p = 1 - t / √(t² + 2). Of two, the lesser is doubled.
  const pOf = (differences) => {
    const mean = (differences[0] + differences[1] + differences[2]) / 3;
    const t = mean / Math.sqrt(differences.reduce((sum, d) => sum + (d - mean) ** 2, 0) / 6);
    return 1 - t / Math.sqrt(t * t + 2);
  };
  const least = Math.min(pOf([0.25, 0.13, 0.11]), pOf([0.05, 0.03, 0.01]));
  assert.ok(Math.abs(Math.min(...[...best.others.values()].map(({ p }) => p)) - 2 * least) < 1e-9);
  assert.equal(bestOf(runs(Object.keys(lines), [1, 2])).length, 0, "two seeds cannot pick and test");
  assert.equal(bestOf(runs(["CR", "matched"], [1, 2, 3])).length, 0, "nothing to compare with");
});

test("p of Student's t and Holm's adjustment", () => {
  // Tables of t at 0.975 have three decimals: within 0.0005 · the density there, at most 0.03.
  for (const [degrees, t] of [[2, 4.303], [3, 3.182], [4, 2.776], [9, 2.262], [30, 2.042]])
    assert.ok(Math.abs(studentP(t, degrees) - 0.05) < 1e-4, String(degrees));
  assert.ok(Math.abs(studentP(-1, 1) - 0.5) < 1e-12);
  assert.deepEqual(holm([0.04, 0.01, 0.5, 0.03]), [0.09, 0.04, 0.5, 0.09]);
  assert.deepEqual(holm([]), []);
  assert.ok(Number.isNaN(pairedDifference(new Map([[1, 2], [2, 3]]), new Map([[1, 1], [2, 1]])).p), "two pairs tell nothing");
});

test("quantiles of Student's t, within 0.002 of the tables", () => {
  const table = [[1, 12.706], [4, 2.776], [30, 2.042], [40, 2.021], [60, 2.0], [120, 1.98], [1000, 1.962]];
  for (const [degrees, t] of table) assert.ok(Math.abs(studentQuantile(degrees) - t) < 0.002, String(degrees));
});
