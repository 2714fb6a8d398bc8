// What the tests of the page share: real run folders of made-up numbers, the program, and a real browser.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

export const program = process.env.LOWTIDE_PROGRAM;
const makeRuns = process.env.LOWTIDE_MAKE_RUNS;

// CTest shows a test that prints this as skipped.
export function skip(reason) {
  console.log(`SKIPPED: ${reason}`);
  process.exit(0);
}

function findChromium() {
  const folders = (process.env.PATH ?? "").split(":");
  const candidates = [
    process.env.LOWTIDE_CHROMIUM,
    ...folders.flatMap((folder) => [join(folder, "chromium"), join(folder, "google-chrome")]),
  ];
  return candidates.find((path) => path && existsSync(path));
}

export async function launch() {
  const executablePath = findChromium();
  if (!executablePath) skip("chromium is missing (Debian: apt install chromium)");
  const { chromium } = await import("playwright-core");
  // As root, which a container's user often is, Chromium starts without its sandbox alone.
  return chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
}

export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), "lowtide-page-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export const make = (...settings) => execFileSync(makeRuns, settings.map(String));
export const report = (folders, html) =>
  execFileSync(program, ["report", ...folders, "--html", html], { stdio: ["ignore", "pipe", "ignore"] });

// What went wrong on any page of this process: a test that ends with it empty has seen no error on a console.
export const problems = [];

// A page whose errors, and requests beyond `allowed`, are problems.
export async function openPage(browser, address, { allowed = /^(file|data|blob):/, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1180, height: 900 },
    acceptDownloads: true,
    ...options,
  });
  const page = await context.newPage();
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && problems.push(`console: ${message.text()}`));
  page.on("request", (request) => allowed.test(request.url()) || problems.push(`request: ${request.url()}`));
  await page.goto(address);
  await page.locator("main section:visible").first().waitFor();
  return { page, context };
}

// Until the curves of all runs that are shown are drawn: their lines arrive one run after the other.
export const curvesDrawn = (page, options) =>
  page.waitForFunction(() => document.querySelector("#curves[aria-busy='false'] svg path") !== null, null, options);

export async function download(page, label) {
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: label, exact: true }).click(),
  ]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path(), "utf8") };
}

export function parseCsv(text) {
  const [header, ...lines] = text
    .trimEnd()
    .split("\n")
    .map((line) =>
      [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
        (cell) => cell[1]?.replaceAll('""', '"') ?? cell[2],
      ),
    );
  return lines.map((cells) => Object.fromEntries(header.map((name, i) => [name, cells[i]])));
}

export const tableRows = (page, id) =>
  page
    .locator(`#${id} tbody tr`)
    .evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));

// The runs as they lie on disk, read here and not by the program.
export function readRuns(root) {
  const read = (path) => JSON.parse(readFileSync(path, "utf8"));
  return readdirSync(root, { recursive: true })
    .filter((name) => name.endsWith("run.json"))
    .flatMap((name) => {
      const folder = join(root, name, "..");
      try {
        const run = read(join(folder, "run.json"));
        const lines = readFileSync(join(folder, "metrics.jsonl"), "utf8")
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line));
        const result = existsSync(join(folder, "result.json")) ? read(join(folder, "result.json")) : null;
        return [{ name: relative(root, folder), folder, run, lines, result }];
      } catch {
        return []; // damaged on purpose
      }
    });
}

export function serve(folder) {
  const child = spawn(program, ["serve", folder, "--port", "0"]);
  const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal })));
  const address = new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => resolve(String(text).match(/http:\S+/)?.[0]));
    child.stderr.on("data", (text) => reject(new Error(String(text))));
  });
  return { address, stop: () => (child.kill("SIGINT"), ended) };
}
