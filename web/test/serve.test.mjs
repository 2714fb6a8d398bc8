// The page of `lowtide serve` while a run goes on.
import assert from "node:assert/strict";
import { appendFileSync, cpSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { curvesDrawn, download, launch, make, openPage, parseCsv, problems, scratch, serve, tableRows } from "./browser.mjs";

const folder = scratch();
const runs = join(folder, "runs"),
  going = join(runs, "going"),
  metrics = join(going, "metrics.jsonl");
const browser = await launch();
let server, page;

before(async () => {
  make("growing", going);
  server = serve(runs);
  ({ page } = await openPage(browser, await server.address, {
    allowed: /^(http:\/\/127\.0\.0\.1|data:|blob:)/,
  }));
});
after(() => browser.close());

const soon = { timeout: 10_000 };
const state = (name) =>
  page
    .locator("#runs tbody tr", { has: page.locator("th", { hasText: new RegExp(`^${name}$`) }) })
    .locator("td")
    .nth(2);
const seen = async (text) =>
  page.waitForFunction((wanted) => document.querySelector("#runs")?.textContent.includes(wanted), text, soon);
const line = (step, loss) =>
  `${JSON.stringify({ step, loss, accuracy: 0.5, lr: 0.1, bits: 5, grad_bits: 8, relative_cost: 0.03, items_per_s: 1, seconds: step / 10 })}\n`;

test("a run that is not finished is shown as it goes", async () => {
  await curvesDrawn(page, soon);
  assert.match(await state("going").textContent(), /running, step 100 of 800/);
  assert.match(await page.locator(".status").textContent(), /Live/);
});

test("a new point arrives by itself", async () => {
  const before_ = parseCsv((await download(page, "Save Learning curves as CSV")).text);
  const drawn = await page
    .locator("#curves svg path")
    .evaluateAll((paths) => paths.map((path) => path.getAttribute("d")).join());
  await page.evaluate(() => (window.stillTheSamePage = true));
  appendFileSync(metrics, line(110, 0.123456789) + '{"step":120,"lo');
  await seen("step 110 of 800");
  await page.waitForFunction(
    (old) => [...document.querySelectorAll("#curves svg path")].map((path) => path.getAttribute("d")).join() !== old,
    drawn,
    soon,
  );
  const after_ = parseCsv((await download(page, "Save Learning curves as CSV")).text);
  assert.equal(after_.length, before_.length + 1, "half a line is not a point");
  assert.equal(after_.find((row) => row.step === "110").loss, "0.123456789");
  appendFileSync(metrics, 'ss":0.1}\n');
  await seen("step 120 of 800");
  assert.equal(await page.evaluate(() => window.stillTheSamePage), true, "without a reload");
});

test("what has the focus keeps it", async () => {
  const filter = page.getByLabel("Filter Runs");
  await filter.focus();
  await page.keyboard.type("go");
  appendFileSync(metrics, line(130, 0.1));
  await seen("step 130 of 800");
  await page.keyboard.type("ing");
  assert.equal(await filter.inputValue(), "going");
  await filter.fill("");
});

test("another run appears, and one that is damaged is told", async () => {
  cpSync(going, join(runs, "second"), { recursive: true });
  await seen("second");
  assert.equal((await tableRows(page, "runs")).length, 2);
  appendFileSync(join(runs, "second", "metrics.jsonl"), "nonsense\n");
  await page.waitForFunction(() => document.querySelector("#skipped")?.checkVisibility(), null, soon);
  assert.match((await tableRows(page, "skipped"))[0].join(), /second.*not a JSON object/);
  assert.equal((await tableRows(page, "runs")).length, 1);
  rmSync(join(runs, "second"), { recursive: true });
});

test("lines that a resume drops are gone", async () => {
  const kept = readFileSync(metrics, "utf8").split("\n").slice(0, 5).join("\n");
  writeFileSync(join(going, "new"), `${kept}\n`);
  renameSync(join(going, "new"), metrics);
  await seen("step 50 of 800");
  await page.waitForTimeout(1500);
  const rows = parseCsv((await download(page, "Save Learning curves as CSV")).text);
  assert.deepEqual(
    rows.filter((row) => row.split === "train").map((row) => row.step),
    ["10", "20", "30", "40", "50"],
  );
});

test("a finished run has its result", async () => {
  const result = {
    metric: "accuracy",
    valid: null,
    test: 0.8125,
    eval_bits: 8,
    relative_cost: 0.04,
    gbitops: { paper: 1, actual: 2 },
    seconds: 9,
    steps: 800,
  };
  writeFileSync(join(going, "result.json"), JSON.stringify(result));
  await seen("81.25 %");
  assert.equal(await state("going").textContent(), "finished");
  assert.ok(await page.locator("#tradeoff").isVisible());
});

test("a study shows who trains what, on which machine, and until when", async () => {
  const suite = join(runs, "suite"),
    first = join(suite, "CR-seed1");
  make("growing", first);
  writeFileSync(
    join(suite, "study.toml"),
    'kind = "suite"\nschedules = ["CR"]\nseeds = 2\nsteps = 800\ndata-dir = "data"\n',
  );
  const lease = { boot: "another", pid_namespace: "pid:[1]", pid: 812, started: 1, serial: 1, host: "node7", job: "4711_0" };
  writeFileSync(join(first, "run.lease"), JSON.stringify(lease));
  appendFileSync(join(first, "metrics.jsonl"), line(200, 0.5));
  await page.waitForFunction(
    () => document.querySelector("#studies")?.textContent.includes("step") && document.querySelector("#studies tbody tr"),
    null,
    soon,
  );
  await page.waitForFunction(() => document.querySelector("#studies").textContent.includes("200 of 800"), null, soon);
  const rows = await tableRows(page, "studies");
  assert.equal(rows.length, 2);
  // 200 steps in 20 s; 600 and 800 are left.
  assert.match(rows[0].join("|"), /CR-seed1\|0\|running\|200 of 800\|20 s\|10\.0\|1\|process 812 on node7, job 4711_0/);
  assert.match(rows[1].join("|"), /CR-seed2\|1\|waiting\|0 of 800/);
  const summary = await page.locator("#studies .note").first().textContent();
  assert.match(
    summary,
    /suite: 0 of 2 runs done · 1 running on 1 machine · 10\.0 steps\/s, 1 items\/s · about 2 min 20 s left, until \d\d:\d\d/,
  );
  rmSync(join(first, "run.lease"));
  await page.waitForFunction(() => document.querySelector("#studies").textContent.includes("none running"), null, soon);
});

test("Ctrl-C ends it cleanly, and the page says so", async () => {
  assert.deepEqual(problems, []);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  await page.waitForFunction(
    () => document.querySelector(".status").textContent.includes("does not answer"),
    null,
    soon,
  );
});
