// A table that sorts, filters and can be saved.

import { element } from "./dom";
import { csvLine, saveCsv, type Cell } from "./export";
import { plural } from "./format";

export interface TableColumn<Row> {
  key: string; // in the CSV file
  title: string;
  numeric?: boolean;
  value: (row: Row) => Cell; // for sorting, and in the CSV file
  text?: (row: Row) => string;
  render?: (row: Row) => Node;
}

export interface TableOptions<Row> {
  id: string;
  title: string;
  note?: string;
  summary?: () => string[]; // what its rows tell together, a line each
  warning?: () => string; // what must be known to read it right; empty where there is nothing
  columns: () => TableColumn<Row>[];
  rows: () => Row[];
  keyOf: (row: Row) => string;
  sorted: { key: string; descending: boolean };
  what: [one: string, many: string];
}

const textOf = <Row>(column: TableColumn<Row>, row: Row) => column.text?.(row) ?? String(column.value(row) ?? "");

// What is missing comes last, whichever way it is sorted.
function compare(a: Cell, b: Cell, descending: boolean): number {
  const missing = (cell: Cell) => cell === null || cell === undefined || cell === "" || Number.isNaN(cell);
  if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
  const order =
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}

export class Table<Row> {
  readonly root: HTMLElement;
  private readonly head = element("thead");
  private readonly body = element("tbody");
  private readonly counted = element("span", { class: "counted", role: "status" });
  private readonly summary = element("div", { class: "note" });
  private readonly warned = element("p", { class: "note warning" });
  private readonly filter: HTMLInputElement;
  private sorted: { key: string; descending: boolean };
  private readonly lines = new Map<string, HTMLTableRowElement>();

  constructor(private readonly options: TableOptions<Row>) {
    this.sorted = { ...options.sorted };
    const { id, title } = options;
    this.filter = element("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": `Filter ${title}`,
      oninput: () => this.update(),
    });
    const save = element(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": `Save ${title} as CSV`,
        title: `Save as lowtide-${id}.csv`,
        onclick: () => this.save(),
      },
      "CSV",
    );
    this.root = element(
      "section",
      { id, class: "table", "aria-labelledby": `${id}-title` },
      element(
        "header",
        {},
        element("h2", { id: `${id}-title` }, title),
        element("div", { class: "buttons" }, this.counted, this.filter, save),
      ),
      ...(options.note ? [element("p", { class: "note" }, options.note)] : []),
      this.summary,
      this.warned,
      element(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": `${id}-title` },
        element("table", { "aria-labelledby": `${id}-title` }, this.head, this.body),
      ),
    );
  }

  update() {
    const columns = this.options.columns();
    const all = this.options.rows();
    const shown = this.arranged(columns, all);
    const summary = this.options.summary?.() ?? [];
    this.root.hidden = all.length === 0 && summary.length === 0;
    this.warned.textContent = this.options.warning?.() ?? "";
    this.summary.replaceChildren(...summary.map((line) => element("p", {}, line)));
    const [one, many] = this.options.what;
    this.counted.textContent =
      shown.length === all.length
        ? plural(all.length, one, many)
        : `${shown.length} of ${plural(all.length, one, many)}`;
    this.drawHead(columns);
    // Rows that are there stay the same elements: what has the focus keeps it while new data arrives.
    const wanted = shown.map((row) => this.line(columns, row));
    const there = new Set(all.map(this.options.keyOf));
    for (const key of this.lines.keys()) if (!there.has(key)) this.lines.delete(key);
    wanted.forEach((line, i) => {
      if (this.body.children[i] !== line) this.body.insertBefore(line, this.body.children[i] ?? null);
    });
    while (this.body.children.length > wanted.length) this.body.lastElementChild!.remove();
  }

  private arranged(columns: TableColumn<Row>[], rows: Row[]): Row[] {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row: Row) => {
      const text = columns
        .map((column) => textOf(column, row))
        .join("\n")
        .toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const by = columns.find((column) => column.key === this.sorted.key) ?? columns[0];
    return rows.filter(fits).sort((a, b) => compare(by.value(a), by.value(b), this.sorted.descending));
  }

  private drawHead(columns: TableColumn<Row>[]) {
    const signature = JSON.stringify([columns.map((column) => column.title), this.sorted]);
    if (this.head.dataset.signature === signature) return;
    this.head.dataset.signature = signature;
    const focused = (document.activeElement as HTMLElement | null)?.dataset.sort;
    const cells = columns.map((column) => {
      const active = column.key === this.sorted.key;
      const direction = this.sorted.descending ? "descending" : "ascending";
      const button = element(
        "button",
        { type: "button", "data-sort": column.key, onclick: () => this.sort(column) },
        column.title,
      );
      return element(
        "th",
        { scope: "col", class: column.numeric ? "numeric" : undefined, "aria-sort": active ? direction : "none" },
        button,
      );
    });
    this.head.replaceChildren(element("tr", {}, ...cells));
    if (focused) this.head.querySelector<HTMLElement>(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  // Numbers begin with the largest, words with A.
  private sort(column: TableColumn<Row>) {
    const again = this.sorted.key === column.key;
    this.sorted = { key: column.key, descending: again ? !this.sorted.descending : column.numeric === true };
    this.update();
  }

  private line(columns: TableColumn<Row>[], row: Row): HTMLTableRowElement {
    const key = this.options.keyOf(row);
    const line = this.lines.get(key) ?? element("tr");
    this.lines.set(key, line);
    const texts = columns.map((column) => textOf(column, row));
    const signature = JSON.stringify(texts);
    if (line.dataset.signature !== signature) {
      line.dataset.signature = signature;
      const cell = (column: TableColumn<Row>, i: number) =>
        element(
          i === 0 ? "th" : "td",
          { scope: i === 0 ? "row" : undefined, class: column.numeric ? "numeric" : undefined },
          column.render?.(row) ?? texts[i],
        );
      line.replaceChildren(...columns.map(cell));
    }
    return line;
  }

  private save() {
    const columns = this.options.columns();
    const rows = this.arranged(columns, this.options.rows());
    saveCsv(`lowtide-${this.options.id}.csv`, [
      csvLine(columns.map((column) => column.key)),
      ...rows.map((row) => csvLine(columns.map((column) => column.value(row)))),
    ]);
  }
}
