// Learning curves, with the bits underneath.

import { loggedRuns } from "./bit_runs";
import { chips, type Chosen } from "./chips";
import type { Tables } from "./columns";
import type { Context, Section } from "./context";
import { drawCurves, type Axis, type Curve, type Quantity } from "./curves_draw";
import { element, labelled, select, svgElement } from "./dom";
import { cellText, csvLine } from "./export";
import { Figure } from "./figure";
import { bitRunsKey, type Group, type Run } from "./runs";

const mostRunsAtFirst = 24;
const mostGroupsAtFirst = 8;

// The whole of what was logged, whatever is drawn. Millions of rows: so what a row shares with the next is put together
// once, and each run's text is handed over before the next is begun.
function csvOf(run: Run, tables: Tables, columns: string[]): Blob {
  let text = "";
  for (const [split, table] of tables) {
    const start = [run.name, run.schedule, run.seed, split].map(cellText).join(",");
    const values = columns.map((column) => table.columns.get(column) ?? new Float64Array(table.rows).fill(NaN));
    for (let i = 0; i < table.rows; ++i) {
      text += start;
      for (const column of values) text += Number.isNaN(column[i]) ? "," : `,${column[i]}`;
      text += "\n";
    }
  }
  return new Blob([text]);
}

export class Curves implements Section {
  readonly usesLines = true;
  readonly root: HTMLElement;
  private readonly figure: Figure;
  private readonly chipRow = element("div", { class: "chips", role: "group", "aria-label": "Schedules shown" });
  private readonly everySeed: HTMLInputElement;
  private readonly resetZoom: HTMLButtonElement;
  private quantity: Quantity = "metric";
  private axis: Axis = "step";
  private zoom: [number, number] | null = null;
  private chosen: Chosen = { experiment: "", hidden: new Set() };
  private invert: (pixel: number) => number = Number;

  constructor(private readonly context: Context) {
    this.everySeed = element("input", { type: "checkbox", onchange: () => this.update() });
    this.resetZoom = element(
      "button",
      { type: "button", class: "quiet", hidden: true, onclick: () => this.zoomTo(null) },
      "Whole run",
    );
    const quantities: [string, string][] = [
      ["metric", "metric"],
      ["loss", "loss"],
      ["lr", "learning rate"],
    ];
    const axes: [string, string][] = [
      ["step", "steps"],
      ["cost", "cost so far"],
      ["seconds", "time"],
    ];
    this.figure = new Figure({
      id: "curves",
      title: "Learning curves",
      note: "Lines are training, rings evaluations; the bands underneath are the bits of each step, as the schedule has them or, of closed loops, as they were logged. Where several logged points share a pixel, the line is their mean and the shade spans the smallest and the largest. Drag to zoom; + and − do so from the keyboard. CSV holds every logged line of the runs shown.",
      controls: [
        select("Show", quantities, this.quantity, (value) => this.set(() => (this.quantity = value as Quantity))),
        select("against", axes, this.axis, (value) => this.set(() => ([this.axis, this.zoom] = [value as Axis, null]))),
        labelled("every seed", this.everySeed),
        this.resetZoom,
        this.chipRow,
      ],
      draw: (width) => this.draw(width),
      csv: () => this.csv(),
    });
    this.root = this.figure.root;
    this.listenForZoom();
  }

  update() {
    const { experiment, look } = this.context;
    if (this.chosen.experiment !== experiment.key) {
      const surplus = experiment.groups.slice(mostGroupsAtFirst).map((group) => group.key);
      this.chosen = { experiment: experiment.key, hidden: new Set(surplus) };
      this.everySeed.checked = experiment.runs.length <= mostRunsAtFirst;
      this.zoom = null;
    }
    chips(this.chipRow, experiment.groups, look, this.chosen, () => this.update());
    this.resetZoom.hidden = this.zoom === null;
    this.figure.update();
  }

  private set(change: () => void) {
    change();
    this.update();
  }

  private shownGroups(): Group[] {
    return this.context.experiment.groups.filter((group) => !this.chosen.hidden.has(group.key));
  }

  private shownRuns(): { run: Run; group: Group }[] {
    return this.shownGroups().flatMap((group) =>
      (this.everySeed.checked ? group.runs : group.runs.slice(0, 1)).map((run) => ({ run, group })),
    );
  }

  private draw(width: number) {
    const shown = this.shownRuns();
    this.context.store.load(shown.map(({ run }) => run.id));
    const curves = shown.flatMap(({ run, group }): Curve[] => {
      const tables = this.context.store.tables.get(run.id);
      if (!tables) return [];
      const bitRuns = this.context.store.schedules.get(bitRunsKey(run)) ?? loggedRuns(tables) ?? [];
      return [{ run, group, tables, look: this.context.look.get(group.key)!, bitRuns }];
    });
    this.root.ariaBusy = String(curves.length < shown.length);
    const drawn = drawCurves(curves, {
      width,
      quantity: this.quantity,
      axis: this.axis,
      metric: this.context.experiment.metric,
      count: this.context.measure.count,
      zoom: this.zoom,
    });
    this.invert = drawn.invert;
    return drawn;
  }

  private async csv(): Promise<(string | Blob)[]> {
    const shown = this.shownRuns();
    await this.context.store.loadAll(shown.map(({ run }) => run.id));
    // What was measured of layers has a figure of its own.
    const ofTraining = (tables: Tables): Tables => new Map([...tables].filter(([split]) => split !== "layers"));
    const loaded = shown.map(({ run }) => ({ run, tables: ofTraining(this.context.store.tables.get(run.id)!) }));
    const columns = [
      ...new Set(loaded.flatMap(({ tables }) => [...tables.values()].flatMap((table) => [...table.columns.keys()]))),
    ];
    const parts: (string | Blob)[] = [csvLine(["run", "schedule", "seed", "split", ...columns])];
    for (const { run, tables } of loaded) {
      parts.push(csvOf(run, tables, columns));
      await new Promise((resolve) => setTimeout(resolve)); // the page goes on answering
    }
    return parts;
  }

  private zoomTo(zoom: [number, number] | null) {
    this.zoom = zoom;
    this.update();
  }

  private listenForZoom() {
    let from: number | null = null;
    const at = (event: PointerEvent) => event.clientX - this.figure.box.left;
    const band = svgElement("rect", { class: "band", y: 0, height: "100%" });
    this.figure.listen("pointerdown", (event) => {
      if (event.button === 0) from = at(event);
    });
    this.figure.listen("pointermove", (event) => {
      if (from === null) return;
      band.setAttribute("x", String(Math.min(from, at(event))));
      band.setAttribute("width", String(Math.abs(at(event) - from)));
      this.figure.overlay.append(band);
    });
    const end = (event: PointerEvent, keep: boolean) => {
      band.remove();
      const [a, b] = [from, at(event)];
      from = null;
      if (keep && a !== null && Math.abs(b - a) > 8)
        this.zoomTo([this.invert(Math.min(a, b)), this.invert(Math.max(a, b))]);
    };
    this.figure.listen("pointerup", (event) => end(event, true));
    this.figure.listen("pointercancel", (event) => end(event, false));
    this.figure.listen("pointerleave", (event) => end(event, false));
    this.figure.listen("dblclick", () => this.zoomTo(null));
    this.figure.listen("keydown", (event) => this.zoomKey(event.key));
  }

  // Halves and doubles what is seen, around its middle.
  private zoomKey(key: string) {
    const factor = { "+": 0.5, "=": 0.5, "-": 2, "−": 2 }[key];
    if (key === "0") this.zoomTo(null);
    if (factor === undefined) return;
    const svg = this.root.querySelector<SVGSVGElement>("svg.together");
    if (!svg) return;
    const [low, high] = [Number(svg.dataset.from), Number(svg.dataset.to)];
    const whole = [Number(svg.dataset.first), Number(svg.dataset.last)];
    const middle = (low + high) / 2,
      half = ((high - low) / 2) * factor;
    const zoom: [number, number] = [Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)];
    this.zoomTo(zoom[0] <= whole[0] && zoom[1] >= whole[1] ? null : zoom);
  }
}
