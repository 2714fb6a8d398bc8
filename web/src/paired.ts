// Differences of two settings, seed by seed, and what they tell.

export interface Difference {
  mean: number;
  half: number; // of its 95 % interval; NaN for fewer than two pairs
  pairs: number;
  p: number; // of a paired t test; NaN for fewer than three pairs, or where all differ alike
}

// Student's t at 0.975, by degrees of freedom; beyond 30 within 0.002.
const quantiles = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11,
  2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];
export const studentQuantile = (degrees: number) => quantiles[degrees - 1] ?? 1.96 + 2.4 / degrees;

// Two-sided p of Student's t with whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
export function studentP(t: number, degrees: number): number {
  const angle = Math.atan(Math.abs(t) / Math.sqrt(degrees));
  const sine = Math.sin(angle),
    cosine = Math.cos(angle),
    odd = degrees % 2 === 1;
  let sum = 0,
    term = odd ? cosine : 1;
  for (let power = odd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term;
    term *= (cosine * cosine * (power + 1)) / (power + 2);
  }
  return 1 - (odd ? (2 / Math.PI) * (angle + sine * sum) : sine * sum);
}

// Holm's: the smallest times all of them, the next times one less, and none below the one before.
export function holm(p: number[]): number[] {
  const order = [...p.keys()].sort((a, b) => p[a] - p[b]);
  const adjusted = [...p];
  let before = 0;
  order.forEach((i, rank) => (adjusted[i] = before = Math.max(before, Math.min(1, (p.length - rank) * p[i]))));
  return adjusted;
}

// Runs of one seed share weights, order and augmentation: differences are taken seed by seed.
export function pairedDifference(ours: Map<number, number>, theirs: Map<number, number>): Difference {
  const differences = [...ours].flatMap(([seed, value]) => (theirs.has(seed) ? [value - theirs.get(seed)!] : []));
  const n = differences.length;
  const mean = differences.reduce((a, b) => a + b, 0) / n;
  const squares = differences.reduce((sum, d) => sum + (d - mean) ** 2, 0);
  const error = n > 1 ? Math.sqrt(squares / (n - 1) / n) : NaN;
  const p = n > 2 && error > 0 ? studentP(mean / error, n - 1) : NaN;
  return { mean, half: n > 1 ? studentQuantile(n - 1) * error : NaN, pairs: n, p };
}

// Of those that have a p; Holm's, for all of them.
export function adjust(differences: Difference[]) {
  const known = differences.filter(({ p }) => Number.isFinite(p));
  holm(known.map(({ p }) => p)).forEach((p, i) => (known[i].p = p));
}
