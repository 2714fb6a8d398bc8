// The frame of a figure: title, what it says, buttons to save it, and points that answer to mouse, finger and keys.

import { element, svgElement } from "./dom";
import { saveCsv, saveSvg } from "./export";

export interface Point {
  x: number; // in the drawing's pixels
  y: number;
  series: string;
  lines: () => string[]; // the first is the heading
}

export interface Drawing {
  svg: SVGSVGElement;
  points: () => Point[]; // series after series, each from left to right; asked for when a pointer comes near
}

export interface FigureOptions {
  id: string;
  title: string;
  note?: string;
  warning?: () => string; // what must be known to read it right; empty where there is nothing
  draw: (width: number) => Drawing | null; // null: there is nothing to draw
  csv: () => string[] | Promise<(string | Blob)[]>;
  controls?: HTMLElement[];
}

const hoverRadius = 40; // pixels from the pointer to a point that still answers
const narrowest = 280; // pixels; margins and labels need some. A page with less room scrolls

export class Figure {
  readonly root: HTMLElement;
  private readonly chart: HTMLElement;
  // Above the drawing, which may be large and is not painted anew for a marker.
  readonly overlay = svgElement("svg", { class: "overlay", "aria-hidden": "true" });
  private readonly marker = svgElement("circle", { class: "marker", r: 6, visibility: "hidden" });
  private readonly tip = element("div", { class: "tip", hidden: true });
  private readonly warned = element("p", { class: "note warning" });
  private readonly spoken = element("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  private drawing: Drawing | null = null;
  private points: Point[] | null = null;
  private current = -1;
  private width = 0;

  constructor(private readonly options: FigureOptions) {
    const name = `lowtide-${options.id}`;
    this.chart = element("div", {
      class: "chart",
      tabindex: 0,
      role: "group",
      "aria-roledescription": "chart",
      "aria-label": `${options.title}. Arrow keys move from point to point.`,
      onpointermove: (event: PointerEvent) => this.hover(event),
      onpointerleave: () => this.show(-1),
      onblur: () => this.show(-1),
      onkeydown: (event: KeyboardEvent) => this.key(event),
    });
    const save = (what: string, file: string, action: () => void) =>
      element(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-label": `Save ${options.title} as ${what}`,
          title: `Save as ${file}`,
          onclick: action,
        },
        what,
      );
    this.root = element(
      "section",
      { id: options.id, class: "figure", "aria-labelledby": `${options.id}-title` },
      element(
        "header",
        {},
        element("h2", { id: `${options.id}-title` }, options.title),
        element(
          "div",
          { class: "buttons" },
          save("SVG", `${name}.svg`, () => this.drawing && saveSvg(`${name}.svg`, this.drawing.svg)),
          save("CSV", `${name}.csv`, async () => saveCsv(`${name}.csv`, await options.csv())),
        ),
      ),
      ...(options.note ? [element("p", { class: "note" }, options.note)] : []),
      this.warned,
      ...(options.controls?.length ? [element("div", { class: "controls" }, ...options.controls)] : []),
      element("div", { class: "stage" }, this.chart, this.tip),
      this.spoken,
    );
    new ResizeObserver(([entry]) => {
      if (entry.contentRect.width === 0) return; // hidden
      const width = Math.max(narrowest, Math.floor(entry.contentRect.width));
      if (width === this.width) return;
      this.width = width;
      this.update();
    }).observe(this.chart);
  }

  // Draws anew; the section is hidden where there is nothing to draw.
  update() {
    // Hidden elements have no width; the last one known serves to see whether there is something now.
    this.drawing = this.options.draw(this.width || 640);
    this.root.hidden = this.drawing === null;
    this.warned.textContent = this.options.warning?.() ?? "";
    this.points = null;
    this.show(-1);
    this.overlay.replaceChildren(this.marker);
    this.chart.replaceChildren(...(this.drawing ? [this.drawing.svg, this.overlay] : []));
  }

  get box(): DOMRect {
    return this.chart.getBoundingClientRect();
  }

  listen<K extends keyof HTMLElementEventMap>(type: K, listener: (event: HTMLElementEventMap[K]) => void) {
    this.chart.addEventListener(type, listener);
  }

  private known(): Point[] {
    this.points ??= this.drawing?.points() ?? [];
    return this.points;
  }

  private hover(event: PointerEvent) {
    const box = this.chart.getBoundingClientRect();
    const x = event.clientX - box.left + this.chart.scrollLeft,
      y = event.clientY - box.top + this.chart.scrollTop;
    let best = -1,
      nearest = hoverRadius ** 2;
    this.known().forEach((point, i) => {
      const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (distance < nearest) [best, nearest] = [i, distance];
    });
    this.show(best);
  }

  private key(event: KeyboardEvent) {
    const points = this.known();
    if (points.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.current;
    const otherSeries = (direction: 1 | -1) => {
      const series = points[at]?.series;
      let i = at;
      while (i >= 0 && i < points.length && points[i].series === series) i += direction;
      if (i < 0 || i >= points.length) return at;
      const next = points.map((point, j) => [point, j] as const).filter(([point]) => point.series === points[i].series);
      const distance = (j: number) => Math.abs(points[j].x - points[at].x);
      return next.reduce((best, [, j]) => (distance(j) < distance(best) ? j : best), next[0][1]);
    };
    const moves: Record<string, () => number> = {
      ArrowRight: () => Math.min(points.length - 1, at + 1),
      ArrowLeft: () => Math.max(0, at - 1),
      ArrowDown: () => (at < 0 ? 0 : otherSeries(1)),
      ArrowUp: () => (at < 0 ? 0 : otherSeries(-1)),
      Home: () => 0,
      End: () => points.length - 1,
      Escape: () => -1,
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.show(move());
    this.spoken.textContent = this.current < 0 ? "" : points[this.current].lines().join(", ");
  }

  private show(index: number) {
    this.current = index;
    const point = index < 0 ? undefined : this.known()[index];
    this.tip.hidden = !point;
    this.marker.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return;
    this.marker.setAttribute("cx", String(point.x));
    this.marker.setAttribute("cy", String(point.y));
    this.tip.replaceChildren(...point.lines().map((line, i) => element(i === 0 ? "strong" : "span", {}, line)));
    const x = point.x - this.chart.scrollLeft,
      y = point.y - this.chart.scrollTop;
    const room = this.chart.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x + 14 + this.tip.offsetWidth > this.chart.clientWidth ? x - 14 - this.tip.offsetWidth : x + 14))}px`;
    this.tip.style.top = `${Math.max(0, y - this.tip.offsetHeight - 12)}px`;
  }
}
