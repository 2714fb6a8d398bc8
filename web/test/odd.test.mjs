// Pages about what is seldom: other lengths, long names, single points, narrow windows. None may put an error on the console.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { curvesDrawn, download, launch, make, openPage, parseCsv, problems, report, scratch, serve, tableRows } from "./browser.mjs";

const folder = scratch();
const browser = await launch();

let lengths, names; // pages that several tests look at

before(async () => {
  make("odd", folder);
  lengths = (await open("lengths")).page;
  names = (await open("names")).page;
});
after(() => browser.close());

async function open(name, options, ...flags) {
  const html = join(folder, `${name}.html`);
  report([join(folder, name), ...flags], html);
  const opened = await openPage(browser, `file://${html}`, options);
  await curvesDrawn(opened.page);
  return opened;
}

const bands = (page) =>
  page
    .locator("#curves svg svg:nth-of-type(2) g[aria-label='rect'] rect")
    .evaluateAll((rects) => rects.map((rect) => ["x", "y", "width"].map((name) => Number(rect.getAttribute(name)))));

test("runs of different lengths are on fronts of their own, with a warning", async () => {
  const page = lengths;
  for (const id of ["tradeoff", "groups"])
    assert.match(await page.locator(`#${id} .warning`).textContent(), /different lengths \(60, 800 steps\)/);
  const rows = parseCsv((await download(page, "Save Metric against cost as CSV")).text);
  const brief = rows.find((row) => row.steps === "60");
  assert.equal(brief.pareto_front, "1", "the only one of its length");
  assert.match(brief.label, /steps=60$/);
  assert.equal(await page.locator("#tradeoff g[aria-label='line'] path").count(), 2);
  // Cheaper and worse than all: were it on their front, that would begin with it.
  const whole = rows.filter((row) => row.steps === "800" && row.pareto_front === "1");
  assert.ok(whole.length >= 1);
});

test("layers at bits of their own are told in the cost", async () => {
  const page = lengths;
  const cost = async (name) => Number((await tableRows(page, "runs")).find(([run]) => run === name)[6]);
  assert.ok((await cost("mixed-1")) > 1.4 * (await cost("CR-1")), "2 % of the MACs are in fp32");
  await page.getByLabel("counted").selectOption("paper");
  await page.waitForFunction(() => document.querySelector("#runs").textContent.includes("Cost, paper"));
  assert.equal(await cost("mixed-1"), await cost("CR-1"));
  await page.getByLabel("counted").selectOption("actual");
  await page.waitForFunction(() => document.querySelector("#runs").textContent.includes("Cost, actual"));
});

test("a saving is told against the highest bits that occur, at the same length", async () => {
  const rows = parseCsv((await download(lengths, "Save By schedule as CSV")).text);
  const saving = (start) => rows.find((row) => row.schedule.startsWith(start)).saving;
  // 377 steps at 192, 423 at 105, against 192; the classifier's 640 MACs in fp32 move it by less than 1e-3.
  assert.ok(Math.abs(saving("delayed") - (1 - (377 * 192 + 423 * 105) / (800 * 192))) < 1e-3);
  assert.equal(rows.find((row) => /steps=60$/.test(row.schedule)).saving, "", "there is no static of its length");
});

test("the command line chooses what the page opens with, and a window too narrow for a figure is no error", async () => {
  const { page, context } = await open("lengths", { viewport: { width: 40, height: 300 } }, "--count", "paper", "--axis", "time");
  assert.equal(await page.getByLabel("counted").inputValue(), "paper");
  assert.equal(await page.getByLabel("Cost in").inputValue(), "time");
  await context.close();
});

test("ways to spend a budget are told apart and compared with constant bits, seed by seed", async () => {
  const { page, context } = await open("equal");
  const rows = parseCsv((await download(page, "Save At equal cost as CSV")).text);
  const named = rows.map(({ budget, way }) => `${budget} ${way}`).sort();
  assert.deepEqual(named, [
    "0.4 CR",
    "0.4 constant",
    "0.4 the best of the ten",
    "0.63 4 then 8",
    "0.63 CR n=2",
    "0.63 CR n=8",
    "0.63 constant",
    "0.63 shorter",
    "0.63 the best of the ten",
    "1 static 8 plateau-every=100 steps=800",
  ]);
  const accuracy = new Map(
    parseCsv((await download(page, "Save Runs as CSV")).text).map(({ run, test }) => [run, Number(test)]),
  );
  const differences = [1, 2, 3].map(
    (seed) => accuracy.get(`CR-0.4-seed${seed}`) - accuracy.get(`constant-0.4-seed${seed}`),
  );
  const mean = differences.reduce((a, b) => a + b) / 3;
  const deviation = Math.sqrt(differences.reduce((sum, d) => sum + (d - mean) ** 2, 0) / 2);
  const cr = rows.find(({ budget, way }) => budget === "0.4" && way === "CR");
  assert.ok(Math.abs(cr.from_constant - mean) < 1e-12);
  assert.ok(Math.abs(cr.half_interval - (4.303 * deviation) / Math.sqrt(3)) < 1e-6, "t(0.975, 2) is 4.303");
  // Two degrees of freedom: p = 1 - t / √(t² + 2); the least of five is multiplied by five.
  const ways = rows.filter(({ way }) => way !== "the best of the ten");
  const least = Math.min(...ways.filter(({ p_adjusted }) => p_adjusted !== "").map(({ p_adjusted }) => +p_adjusted));
  const unadjusted = ways
    .filter(({ half_interval }) => half_interval !== "")
    .map(({ from_constant, half_interval }) => (4.303 * Math.abs(from_constant)) / half_interval)
    .map((t) => 1 - t / Math.sqrt(t * t + 2));
  assert.equal(unadjusted.length, 5);
  assert.ok(Math.abs(least - Math.min(1, 5 * Math.min(...unadjusted))) < 1e-3);
  assert.equal(rows.find(({ way }) => way === "constant").from_constant, "");
  // Of the ten there is one at each budget, whatever seeds pick it.
  const best = rows.find(({ budget, way }) => budget === "0.4" && way === "the best of the ten");
  assert.deepEqual([best.schedule, best.seeds, best.from_constant], ["CR", "3", cr.from_constant]);
  const shorter = rows.find(({ way }) => way === "shorter");
  const fromBest = [1, 2, 3].map((seed) => accuracy.get(`shorter-0.63-seed${seed}`) - accuracy.get(`CR-0.63-seed${seed}`));
  assert.ok(Math.abs(shorter.from_best - fromBest.reduce((a, b) => a + b) / 3) < 1e-12);
  assert.equal(cr.from_best, "");
  // A panel with the front, and one a budget with differences from constant, where the best of the ten has a row.
  assert.equal(await page.locator("#equal-cost svg.together > svg").count(), 3);
  assert.equal(await page.locator("#equal-cost g[aria-label='dot'] circle").count(), 8 + (1 + 1) + (4 + 1));
  assert.equal(await page.locator("#groups .warning").textContent().then((text) => /504, 800/.test(text)), true);
  await context.close();
});

test("bits that layers had are a heat map of layers and steps", async () => {
  const { page, context } = await open("layerbits");
  const section = page.locator("#layer-statistics");
  const cells = section.locator("g[aria-label='cell'] rect");
  await cells.first().waitFor();
  assert.equal(await section.getByLabel("Show").inputValue(), "bits", "nothing else is known");
  assert.equal(await cells.count(), 9 * 100, "layers without a rule, in as many columns as can be shown");
  const rows = parseCsv((await download(page, "Save Layers under rounding as CSV")).text);
  const bits = (layer) => rows.filter((row) => row.layer === layer).map(({ step, bits }) => [step, bits]);
  assert.deepEqual(bits("conv1"), [["50", "8"], ["200", "8"]]);
  assert.deepEqual(bits("group1.0.conv1"), [["50", "4"], ["200", "5"]]);
  await context.close();
});

test("what was measured of layers is a heat map of layers and steps", async () => {
  const { page, context } = await open("stats");
  const section = page.locator("#layer-statistics");
  const cells = section.locator("g[aria-label='cell'] rect");
  await cells.first().waitFor();
  assert.deepEqual(await section.locator("select").first().locator("option").allTextContents(), ["CR"]);
  // Ten looks at nine layers; the classifier, in fp32, has no noise, but it has a sensitivity.
  assert.equal(await cells.count(), 90);
  await section.getByLabel("Show").selectOption("sensitivity");
  assert.equal(await cells.count(), 100);
  await section.getByLabel("Show").selectOption("error_snr");
  assert.match(await section.locator(".chart").textContent(), /Not known of this run/);
  const rows = parseCsv((await download(page, "Save Layers under rounding as CSV")).text);
  assert.equal(rows.length, 100);
  const conv = rows.find(({ step, layer }) => step === "200" && layer === "group1.0.conv1");
  assert.deepEqual([conv.clipped, conv.sensitivity, conv.error_snr], ["0.0025", "0.02", ""]);
  // They are no lines of training: the curves' data does not have them.
  const curves = parseCsv((await download(page, "Save Learning curves as CSV")).text);
  assert.ok(!curves.some(({ split }) => split === "layers") && !("conv1.clipped" in curves[0]));
  await context.close();
});

test("bits between two logged lines are drawn", async () => {
  const { page, context } = await open("bits");
  const rows = new Map();
  for (const [x, y, width] of await bands(page)) rows.set(y, [...(rows.get(y) ?? []), { x, width }]);
  // Eight cycles from 3 to 8 bits; RR skips some. The closed loop climbs at three steps at most.
  const counts = [...rows.values()].map((row) => row.length).sort((a, b) => a - b);
  assert.equal(counts.length, 3);
  assert.ok(counts[0] >= 3 && counts[0] <= 4, `${counts}`);
  assert.ok(counts[1] >= 8 * 3 && counts[2] >= 8 * 6, `${counts}`);
  const ends = [...rows.values()].map((row) => row.reduce((sum, { width }) => sum + width, 0));
  for (const width of ends) assert.ok(Math.abs(width - ends[0]) < 1e-6, "without gaps, all as long");
  // Rings lie at their own steps: 50, 100, 150 and 200, though lines are at 100 and 200 alone.
  const rings = await page
    .locator("#curves g[aria-label='dot'] circle[r='3']")
    .evaluateAll((circles) => new Set(circles.map((circle) => Math.round(circle.getAttribute("cx")))).size);
  assert.equal(rings, 4);
  // Bit operations are logged by new runs alone: all are then told as the papers count.
  await page.locator("#curves select").nth(1).selectOption("cost");
  assert.match(await page.locator("#curves .chart").textContent(), /relative to the whole run at fp32, as papers count/);
  await page.locator("#curves").getByRole("button", { name: "RR", exact: true }).click();
  assert.match(await page.locator("#curves .chart").textContent(), /GBitOps so far, actual/);
  await context.close();
});

test("a curve of one point is a dot", async () => {
  const { page, context } = await open("one");
  // Filled, where those of evaluations are rings.
  const dot = page.locator("#curves g[aria-label='dot']:not([fill='var(--surface)']) circle").first();
  await dot.waitFor();
  const box = await dot.boundingBox();
  assert.ok(box.width >= 4, "that can be seen");
  await context.close();
});

test("the line of reference is of training of the same length", async () => {
  const { page, context } = await open("periods");
  const rows = parseCsv((await download(page, "Save Critical periods as CSV")).text);
  assert.deepEqual(
    rows.map((row) => [row.start_or_R, row.normal_steps]),
    [
      ["0", "200"],
      ["50", "200"],
      ["100", "200"],
    ],
  );
  const labels = await page.locator("#critical svg text").allTextContents();
  assert.ok(labels.includes("static 8 steps=200"), `${labels}`);
  assert.ok(!labels.some((label) => label.includes("steps=40")));
  await context.close();
});

const overlapping = (page, scope) =>
  page.locator(`${scope} svg text`).evaluateAll((texts) => {
    const boxes = texts
      .map((text) => ({ text: text.textContent, box: text.getBoundingClientRect() }))
      .filter(({ text, box }) => text && box.width > 0);
    const found = [];
    boxes.forEach((a, i) =>
      boxes.slice(i + 1).forEach((b) => {
        const x = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const y = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        if (x > 2 && y > 5) found.push(`${a.text} | ${b.text}`);
      }),
    );
    return found;
  });

for (const width of [390, 800, 1400]) {
  test(`long names keep apart and in their place, ${width} pixels wide`, async () => {
    const page = names;
    await page.setViewportSize({ width, height: 900 });
    // Drawn anew, at the width that there is now.
    await page.waitForFunction(() => {
      const chart = document.querySelector("#curves .chart");
      return Number(chart.querySelector("svg").getAttribute("width")) === Math.floor(chart.getBoundingClientRect().width);
    });
    await curvesDrawn(page);
    for (const scope of ["#tradeoff", "#curves", "#schedules", "#layers"])
      assert.deepEqual(await overlapping(page, scope), [], scope);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    const outside = await page
      .locator(".chart svg text")
      .evaluateAll((texts, right) => texts.filter((text) => text.getBoundingClientRect().right > right).length, width);
    assert.equal(outside, 0);
  });
}

test("a wide table can be scrolled to its last column", async () => {
  const page = names;
  await page.setViewportSize({ width: 800, height: 900 });
  const last = page.locator("#runs tbody tr").first().locator("td").last();
  await last.scrollIntoViewIfNeeded();
  const box = await last.boundingBox();
  assert.ok(box.x + box.width <= 800 + 1);
  const name = await page.locator("#runs tbody tr").first().locator("th").boundingBox();
  assert.ok(name.x >= 0, "and the name stays");
});

test("models are chosen, not mixed", async () => {
  const { page, context } = await open("models");
  const options = await page.getByLabel("Experiment").locator("option").allTextContents();
  assert.deepEqual(options, ["cifar-resnet74 on fashion-mnist (1 run)", "cifar-resnet8 on fashion-mnist (1 run)"]);
  assert.equal((await tableRows(page, "runs")).length, 1);
  await context.close();
});

test("without a run the page says so", async () => {
  const empty = join(folder, "empty");
  mkdirSync(empty);
  const server = serve(empty);
  const context = await browser.newContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  await page.goto(await server.address);
  await page.waitForTimeout(300);
  assert.equal(await page.locator("h1").textContent(), "No runs yet");
  await context.close();
  await server.stop();
});

test("in all of this no error, nothing on the console, nothing from a network", () => assert.deepEqual(problems, []));
