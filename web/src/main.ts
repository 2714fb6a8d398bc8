import type { Context, Section } from "./context";
import { critical } from "./critical";
import { Curves } from "./curves";
import { element, select } from "./dom";
import { equalCost } from "./equal_cost";
import { grouped, plural } from "./format";
import { Landscapes } from "./landscape";
import { LayerStatistics } from "./layer_statistics";
import { Layers } from "./layers";
import { looks } from "./palette";
import { makeExperiments, type CostAxis, type Count, type Experiment, type Split } from "./runs";
import { schedules } from "./schedules";
import { openStore } from "./store";
import { studiesTable } from "./studies";
import { groupsTable, runsTable, skippedTable } from "./tables";
import { themeButton } from "./theme";
import { tradeoff } from "./tradeoff";

const nothing: Experiment = { key: "", label: "No runs yet", metric: "accuracy", runs: [], groups: [] };

let experiments: Experiment[] = [];
let chosen = "";
let split: Split = "test";
let sections: Section[] = [];

const store = openStore((news) => (news === "runs" ? schedule() : scheduleLines()));

let measure = store.measure;

const context: Context = {
  store,
  get experiment() {
    return experiments.find((experiment) => experiment.key === chosen) ?? experiments[0] ?? nothing;
  },
  get look() {
    return look;
  },
  get split() {
    return split;
  },
  get measure() {
    return measure;
  },
};
let look = looks(nothing);

// However much arrives, the page is drawn once a frame.
let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    update();
  });
}

// Lines arrive run by run, and drawing many takes its time: no more than half of all time goes into it.
let linesScheduled = false,
  lastTook = 0;
function scheduleLines() {
  if (linesScheduled) return;
  linesScheduled = true;
  setTimeout(
    () => {
      linesScheduled = false;
      const begun = performance.now();
      for (const section of sections) if (section.usesLines) section.update();
      lastTook = performance.now() - begun;
    },
    Math.max(50, lastTook),
  );
}

const title = element("h1");
const summary = element("p", { class: "summary" });
const status = element("p", { class: "status", role: "status" });
const choices = element("div", { class: "controls" });
const contents = element("nav", { "aria-label": "Sections" });

function update() {
  experiments = makeExperiments([...store.runs.values()]);
  look = looks(context.experiment);
  drawHeader();
  if (sections.length === 0 && (experiments.length > 0 || store.skipped.length > 0 || store.studies.length > 0))
    build();
  for (const section of sections) section.update();
  drawContents();
}

function drawHeader() {
  const { experiment } = context;
  title.textContent = experiment.label;
  document.title = `${experiment.label} – Lowtide`;
  const finished = experiment.runs.filter((run) => run.result).length;
  const seeds = new Set(experiment.runs.map((run) => run.seed)).size;
  const parts = [
    plural(experiment.runs.length, "run"),
    ...(finished < experiment.runs.length ? [`${grouped(finished)} finished`] : []),
    plural(experiment.groups.length, "schedule"),
    plural(seeds, "seed"),
    ...(store.made ? [`made ${store.made.replace("T", " ").replace("Z", " UTC")}`] : []),
  ];
  summary.textContent = parts.join(" · ");
  const skipped = store.skipped.length
    ? `${plural(store.skipped.length, "folder was", "folders were")} skipped: see the end of the page. `
    : "";
  const live = store.live
    ? store.problem
      ? `Not live: ${store.problem}.`
      : "Live: new points appear as runs log them."
    : "";
  const text = skipped + live;
  if (status.textContent !== text) status.textContent = text;
  status.classList.toggle("trouble", store.problem !== null);
  drawChoices();
}

function drawChoices() {
  const heldOut = context.experiment.runs.some((run) => run.result?.valid != null);
  const finished = context.experiment.runs.some((run) => run.result);
  const signature = JSON.stringify([
    experiments.map((experiment) => [experiment.key, experiment.label, experiment.runs.length]),
    split,
    chosen,
    measure,
    heldOut,
    finished,
  ]);
  if (choices.dataset.signature === signature) return;
  choices.dataset.signature = signature;
  const options = experiments.map((experiment): [string, string] => [
    experiment.key,
    `${experiment.label} (${plural(experiment.runs.length, "run")})`,
  ]);
  const focused = (document.activeElement as HTMLElement | null)?.closest(".control")?.textContent;
  choices.replaceChildren(
    ...(experiments.length > 1
      ? [
          select("Experiment", options, context.experiment.key, (value) => {
            chosen = value;
            schedule();
          }),
        ]
      : []),
    ...(heldOut
      ? [
          select(
            "Judged by",
            [
              ["test", "test set"],
              ["valid", "held-out items"],
            ],
            split,
            (value) => {
              split = value as Split;
              schedule();
            },
          ),
        ]
      : []),
    ...(finished ? costChoices() : []),
  );
  // What was just used keeps the focus.
  if (focused) [...choices.children].find((label) => label.textContent === focused)?.querySelector("select")?.focus();
}

function costChoices(): HTMLElement[] {
  const axes: [string, string][] = [
    ["bitops", "bit operations"],
    ["time", "time"],
  ];
  const counts: [string, string][] = [
    ["actual", "actual: each layer at the bits it ran at"],
    ["paper", "paper: every layer at the scheduled bits"],
  ];
  const choose = (change: Partial<typeof measure>) => {
    measure = { ...measure, ...change };
    schedule();
  };
  return [
    select("Cost in", axes, measure.axis, (value) => choose({ axis: value as CostAxis })),
    select("counted", counts, measure.count, (value) => choose({ count: value as Count })),
  ];
}

function drawContents() {
  const shown = sections.filter((section) => !section.root.hidden);
  const signature = shown.map((section) => section.root.id).join(" ");
  if (contents.dataset.signature === signature) return;
  contents.dataset.signature = signature;
  contents.replaceChildren(
    ...shown.map(({ root }) => element("a", { href: `#${root.id}` }, root.querySelector("h2")!.textContent!)),
  );
}

function build() {
  sections = [
    studiesTable(context),
    tradeoff(context),
    equalCost(context),
    groupsTable(context),
    new Curves(context),
    schedules(context),
    new Layers(context),
    new LayerStatistics(context),
    critical(context),
    new Landscapes(context),
    runsTable(context),
    skippedTable(context),
  ];
  main.replaceChildren(...sections.map((section) => section.root));
}

const main = element("main");
document
  .getElementById("app")!
  .append(
    element(
      "header",
      { class: "page" },
      element("div", { class: "bar" }, element("span", { class: "brand" }, "Lowtide"), themeButton()),
      title,
      summary,
      status,
      choices,
      contents,
    ),
    main,
    element("footer", {}, store.program ? `Made by ${store.program}.` : "Served by lowtide serve."),
  );
update();
