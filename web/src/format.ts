// Numbers and words for people.

export const isFraction = (metric: string) => /accuracy|map|f1|auc|precision|recall/i.test(metric);
export const lowerIsBetter = (metric: string) => /perplexity|loss|error|ppl/i.test(metric);

export function significant(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  if (magnitude >= 1e7 || magnitude < 1e-4) return value.toExponential(digits - 1).replace("e+", "e");
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(magnitude)));
  return value.toFixed(Math.min(decimals, 8));
}

export function metricText(metric: string, value: number | null | undefined, decimals = 2): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return isFraction(metric) ? `${(100 * value).toFixed(decimals)} %` : significant(value, decimals + 2);
}

// The part after ±, in the metric's own unit.
export function spreadText(metric: string, value: number): string {
  return isFraction(metric) ? (100 * value).toFixed(2) : significant(value, 3);
}

export const costText = (value: number | null | undefined) =>
  value === null || value === undefined || !Number.isFinite(value) ? "–" : value.toFixed(4);

export function grouped(value: number | null | undefined, decimals = 0): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export function durationText(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// For axes.
export const shortDuration = (seconds: number): string =>
  seconds === 0
    ? "0"
    : durationText(seconds)
        .replace(/ (0 s|0 min)$/, "")
        .replace(".0 s", " s");

// A mean of bits has a fraction.
export const bitsText = (bits: number) => (bits === 0 ? "fp32" : `${+bits.toFixed(2)} bits`);

export const plural = (count: number, one: string, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

// 12000 as 12k: for axes.
export function shortNumber(value: number): string {
  const magnitude = Math.abs(value);
  if (magnitude >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (magnitude >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (magnitude >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(6)}`;
}
