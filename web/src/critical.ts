// Critical periods: what low precision early, or for a while, leaves behind.

import * as Plot from "@observablehq/plot";
import type { Context } from "./context";
import { csvLine } from "./export";
import { Figure, type Drawing, type Point } from "./figure";
import { grouped, isFraction, metricText, plural, shortNumber, spreadText } from "./format";
import { differingKeys, metricOf, statistics, valueText, type Run, type Statistics } from "./runs";
import { addText, plotStyle, together, type Placed, type PlotSvg } from "./svg";

interface Period extends Statistics {
  kind: "deficit" | "window";
  series: string; // bits, of a window its length, and where there are several, the training's
  at: number; // R, or the window's start
  runs: Run[];
}

// Of the normal training: what comes before it, while the learning rate waits, is not counted.
const lengthOf = ({ total_steps, variant }: Run) => (total_steps ?? NaN) - Number(variant["lr-delay"] ?? 0);

// What a deficit changes in a recipe beside its schedule.
const following = new Set(["schedule", "steps", "epochs", "lr-delay", "swa-start"]);
const restOf = ({ variant }: Run) =>
  JSON.stringify(Object.entries(variant).filter(([key]) => !following.has(key)));

// With a window of no steps nothing is low: what the other windows are compared with.
const hasNoWindow = ({ spec: { window } }: Run) => window !== undefined && window[0] === window[1];

// A window that ends with training, whose network is judged at bits that it never saw again.
const endsAtOtherBits = ({ spec: { window, low }, total_steps, result }: Run) =>
  window !== undefined && window[1] >= (total_steps ?? Infinity) && result?.eval_bits !== low;

const isCritical = ({ spec }: Run) => spec.deficit !== undefined || spec.window !== undefined;

// Runs of one deficit or window, whatever else in their recipe follows from it (a longer run, later decays). Those that
// differ in length or in anything else are series of their own, and say in what.
function periodsOf(context: Context): Period[] {
  const critical = context.experiment.runs.filter(isCritical);
  const several = new Set(critical.map(lengthOf)).size > 1;
  const keys = differingKeys(critical).filter((key) => !following.has(key));
  const apart = (run: Run) => [
    ...(several ? [`${grouped(lengthOf(run))} steps`] : []),
    ...keys.map((key) => `${key}=${valueText(run.variant[key])}`),
  ];
  const found = new Map<string, Period & { values: number[] }>();
  for (const run of critical) {
    const { deficit, window, low, high } = run.spec;
    const value = metricOf(run, context.split);
    if (hasNoWindow(run) || !Number.isFinite(value)) continue;
    const bits = window
      ? `${grouped(window[1] - window[0])} steps at ${low} bits, else ${high}`
      : `${low} bits, then ${high}`;
    const series = [bits, ...apart(run)].join(", ");
    const at = window ? window[0] : deficit!;
    const key = `${window ? "window" : "deficit"}|${series}|${at}`;
    const period = found.get(key) ?? {
      kind: window ? "window" : "deficit",
      series,
      at,
      runs: [],
      values: [],
      mean: 0,
      deviation: 0,
      count: 0,
    };
    period.runs.push(run);
    period.values.push(value);
    found.set(key, period);
  }
  return [...found.values()]
    .map((period) => ({ ...period, ...statistics(period.values)! }))
    .sort((a, b) => a.series.localeCompare(b.series) || a.at - b.at);
}

interface Baseline {
  mean: number;
  label: string;
  series: string;
}

// What the high precision gives without a deficit, for each series in trainings of its length and recipe.
function baselinesOf(context: Context, periods: Period[]): Baseline[] {
  const bySeries = new Map(periods.map((period) => [period.series, period.runs[0]]));
  return [...bySeries].flatMap(([series, run]) => {
    const peers = context.experiment.groups.filter(
      ({ runs: [peer] }) =>
        peer.spec.high === run.spec.high && lengthOf(peer) === lengthOf(run) && restOf(peer) === restOf(run),
    );
    const group =
      peers.find(({ runs: [peer] }) => peer.spec.name === "static") ?? peers.find(({ runs: [peer] }) => hasNoWindow(peer));
    const known = group && statistics(group.finished.map((one) => metricOf(one, context.split)));
    return known ? [{ mean: known.mean, label: group.label, series }] : [];
  });
}

const hues = ["var(--hue-1)", "var(--hue-2)", "var(--hue-3)", "var(--hue-4)", "var(--hue-5)"];

function panel(context: Context, periods: Period[], title: string, width: number): { svg: PlotSvg; points: Point[] } {
  const { metric } = context.experiment;
  const baselines = baselinesOf(context, periods);
  const series = [...new Set(periods.map((period) => period.series))];
  const color = ({ series: name }: { series: string }) => hues[series.indexOf(name) % hues.length];
  // One that all series share has the colour of none.
  const shared = new Set(baselines.map(({ label }) => label)).size === 1;
  const ruleColor = (baseline: Baseline) => (shared ? "var(--baseline-2)" : color(baseline));
  const svg = Plot.plot({
    style: plotStyle,
    width,
    height: 290,
    marginLeft: 56,
    marginRight: 20,
    marginTop: 30 + 15 * series.length,
    marginBottom: 42,
    x: {
      label: title,
      labelAnchor: "center",
      labelArrow: "none",
      tickFormat: shortNumber,
      ticks: 5,
      insetLeft: 10,
      insetRight: 10,
    },
    y: {
      label: `${context.split === "test" ? "test" : "held-out"} ${metric}`,
      labelArrow: "none",
      grid: true,
      ticks: 5,
      inset: 10,
      tickFormat: isFraction(metric) ? (v: number) => `${+(100 * v).toFixed(2)} %` : shortNumber,
    },
    marks: [
      Plot.ruleY(baselines, { y: "mean", stroke: ruleColor, strokeDasharray: "3 4" }),
      Plot.line(periods, { x: "at", y: "mean", z: "series", stroke: color, strokeWidth: 1.6 }),
      Plot.ruleX(
        periods.filter((period) => period.count > 1),
        {
          x: "at",
          y1: (p: Period) => p.mean - p.deviation,
          y2: (p: Period) => p.mean + p.deviation,
          stroke: color,
          strokeOpacity: 0.7,
        },
      ),
      Plot.dot(periods, {
        x: "at",
        y: "mean",
        fill: (p: Period) => (endsAtOtherBits(p.runs[0]) ? "var(--surface)" : color(p)),
        stroke: (p: Period) => (endsAtOtherBits(p.runs[0]) ? color(p) : "var(--surface)"),
        r: 4.5,
      }),
    ],
  }) as PlotSvg;
  series.forEach((name, i) =>
    addText(svg, 56, 30 + 15 * i, name, { fill: hues[i % hues.length], weight: 550 }, width - 70),
  );
  const x = svg.scale("x"),
    y = svg.scale("y");
  for (const baseline of shared ? baselines.slice(0, 1) : baselines) {
    const fill = shared ? "var(--muted)" : color(baseline);
    addText(svg, width - 20, y.apply(baseline.mean) - 5, baseline.label, { fill, anchor: "end", halo: true }, width / 2);
  }
  const points = periods.map((period): Point => ({
    x: x.apply(period.at),
    y: y.apply(period.mean),
    series: period.series,
    lines: () => [
      period.series,
      `${period.kind === "deficit" ? "first" : "from step"} ${grouped(period.at)}${period.kind === "deficit" ? " steps" : ""}`,
      `${metric} ${metricText(metric, period.mean)}${period.count > 1 ? ` ± ${spreadText(metric, period.deviation)}` : ""}`,
      plural(period.count, "seed"),
      ...(endsAtOtherBits(period.runs[0]) ? ["ends with training: judged at bits never seen again"] : []),
    ],
  }));
  return { svg, points };
}

function draw(context: Context, width: number): Drawing | null {
  const periods = periodsOf(context);
  const kinds = (["deficit", "window"] as const).filter((kind) => periods.some((period) => period.kind === kind));
  if (kinds.length === 0) return null;
  const titles = { deficit: "length of the deficit R, in steps", window: "start of the window, step" };
  const sideBySide = kinds.length === 2 && width >= 640;
  const each = sideBySide ? width / 2 : width;
  const placed: Placed[] = [],
    points: Point[] = [];
  kinds.forEach((kind, i) => {
    const drawn = panel(
      context,
      periods.filter((period) => period.kind === kind),
      titles[kind],
      each,
    );
    const x = sideBySide ? i * each : 0,
      y = sideBySide ? 0 : i * 300;
    placed.push({ svg: drawn.svg, x, y });
    points.push(...drawn.points.map((point) => ({ ...point, x: point.x + x, y: point.y + y })));
  });
  return { svg: together(width, sideBySide || kinds.length === 1 ? 290 : 590, placed), points: () => points };
}

function csv(context: Context): string[] {
  const rows = periodsOf(context).flatMap((period) =>
    period.runs.map((run) =>
      csvLine([
        period.kind,
        run.spec.low,
        run.spec.high,
        period.at,
        run.spec.window ? run.spec.window[1] - run.spec.window[0] : period.at,
        lengthOf(run),
        run.name,
        run.seed,
        metricOf(run, context.split),
      ]),
    ),
  );
  return [
    csvLine([
      "kind",
      "low_bits",
      "high_bits",
      "start_or_R",
      "low_steps",
      "normal_steps",
      "run",
      "seed",
      `${context.split}_${context.experiment.metric}`,
    ]),
    ...rows,
  ];
}

export function critical(context: Context): Figure {
  return new Figure({
    id: "critical",
    title: "Critical periods",
    note: "The final metric after low precision for the first R steps (deficit), or in a window of steps; bars are one standard deviation over seeds. The dashed line is training of the same length without. A hollow point is a window that ends with training: its network is judged at bits that it never saw again.",
    draw: (width) => draw(context, width),
    csv: () => csv(context),
  });
}
