// The schedules, each as bits over the run.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { loggedRuns, type BitRuns } from "./bit_runs";
import { bitsText, costText, grouped, shortNumber } from "./format";
import { bitRunsKey, groupMean, relativeCost, type Group } from "./runs";
import { bitsAxis, fitted, plotStyle, textWidth, type PlotSvg } from "./svg";

const margins = { left: 40, top: 8 };
const heading = { weight: 600, size: 12 };

interface Panel {
  group: Group;
  runs: BitRuns;
  logged: boolean; // as it was logged, not as it was asked for
}

function panelsOf(context: Context): Panel[] {
  return context.experiment.groups.flatMap((group): Panel[] => {
    const known = context.store.schedules.get(bitRunsKey(group.runs[0]));
    if (known) return [{ group, runs: known, logged: false }];
    context.store.load([group.runs[0].id]);
    const runs = loggedRuns(context.store.tables.get(group.runs[0].id));
    return runs?.length ? [{ group, runs, logged: true }] : [];
  });
}

function draw(context: Context, width: number): Drawing | null {
  const panels = panelsOf(context);
  if (panels.length === 0) return null;
  const across = Math.max(1, Math.min(panels.length, Math.floor(width / (width < 500 ? 170 : 230))));
  const down = Math.ceil(panels.length / across);
  const axis = bitsAxis(panels.flatMap((panel) => panel.runs.map(([bits]) => bits)));
  const steps = panels.flatMap((panel, i) => {
    let at = 0;
    return panel.runs.flatMap(([bits, count]) => {
      const from = at;
      at += count;
      return [
        { panel: i, step: from, bits: axis.place(bits) },
        { panel: i, step: at, bits: axis.place(bits) },
      ];
    });
  });
  const fx = (i: number) => i % across,
    fy = (i: number) => Math.floor(i / across);
  const color = (i: number) => context.look.get(panels[i].group.key)!.color;
  const room = (width - margins.left - 14) / across / 1.14; // of a panel
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 40 + down * 134,
    marginLeft: margins.left,
    marginRight: 14,
    marginTop: margins.top,
    marginBottom: 40,
    fx: { axis: null, domain: Array.from({ length: across }, (_, i) => i), padding: 0.12 },
    fy: { axis: null, domain: Array.from({ length: down }, (_, i) => i), padding: 0.16 },
    x: { label: "step", labelAnchor: "center", labelArrow: "none", ticks: 2, tickFormat: shortNumber },
    y: { domain: axis.domain, label: null, ticks: axis.ticks, tickFormat: axis.text, insetTop: 30, insetBottom: 2 },
    marks: [
      Plot.gridY(axis.ticks),
      Plot.line(steps, {
        fx: (d) => fx(d.panel),
        fy: (d) => fy(d.panel),
        z: "panel",
        x: "step",
        y: "bits",
        stroke: (d) => color(d.panel),
        strokeWidth: 1.6,
        strokeLinejoin: "miter",
      }),
      Plot.text(panels, {
        fx: (_, i) => fx(i),
        fy: (_, i) => fy(i),
        text: (p: Panel) => fitted(p.group.label, room, heading),
        title: (p: Panel) => p.group.label,
        frameAnchor: "top-left",
        dy: 2,
        fill: (_, i) => color(i),
        fontWeight: heading.weight,
        fontSize: heading.size,
      }),
      Plot.text(panels, {
        fx: (_, i) => fx(i),
        fy: (_, i) => fy(i),
        text: (p: Panel) => subtitle(context, p, room),
        frameAnchor: "top-right",
        dy: 3,
        fill: "var(--muted)",
        fontSize: 10.5,
      }),
    ],
  }) as PlotSvg;
  return { svg, points: () => pointsOf(svg, panels, axis.place, fx, fy) };
}

// Beside the name, where there is room for both.
function subtitle(context: Context, panel: Panel, room: number): string {
  const cost = groupMean(panel.group, (run) => relativeCost(run, context.measure.count));
  const text = Number.isFinite(cost) ? `cost ${costText(cost)}` : panel.logged ? "as logged" : "";
  return textWidth(panel.group.label, heading) + textWidth(text, { size: 10.5 }) + 10 < room ? text : "";
}

// One point a stretch of bits, at its middle.
function pointsOf(
  svg: PlotSvg,
  panels: Panel[],
  place: (bits: number) => number,
  fx: (i: number) => number,
  fy: (i: number) => number,
): Point[] {
  const x = svg.scale("x"),
    y = svg.scale("y"),
    left = svg.scale("fx"),
    top = svg.scale("fy");
  return panels.flatMap((panel, i) => {
    // A scale of x or y is that of a panel at the margins; those of fx and fy say where a panel really is.
    const dx = left.apply(fx(i)) - margins.left,
      dy = top.apply(fy(i)) - margins.top;
    let at = 0;
    return panel.runs.map(([bits, count]): Point => {
      const from = at;
      at += count;
      return {
        x: x.apply((from + at) / 2) + dx,
        y: y.apply(place(bits)) + dy,
        series: panel.group.key,
        lines: () => [
          panel.group.label,
          bitsText(bits),
          `steps ${grouped(from)} to ${grouped(from + count - 1)}`,
          panel.group.line,
        ],
      };
    });
  });
}

function csv(context: Context): string[] {
  const parts = [csvLine(["label", "schedule", "from_step", "steps", "bits"])];
  for (const { group, runs } of panelsOf(context)) {
    let at = 0;
    for (const [bits, count] of runs) {
      parts.push(csvLine([group.label, group.line, at, count, bits]));
      at += count;
    }
  }
  return parts;
}

export function schedules(context: Context): Section {
  const figure = new Figure({
    id: "schedules",
    title: "Schedules",
    note: "Bits of the forward pass over the run.",
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
  return { root: figure.root, usesLines: true, update: () => figure.update() };
}
