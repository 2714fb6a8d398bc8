// What a curve of many points becomes on few pixels.

export interface Thinned {
  x: Float64Array;
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
}

// Points within [from, to] in `buckets` equal parts of it: of each part the middle, the mean, the smallest and
// the largest value. Where a part holds a single point, it is that point. NaN is left out. `x` must not fall.
export function thin(x: Float64Array, y: Float64Array, from: number, to: number, buckets: number): Thinned {
  const out: Thinned = {
    x: new Float64Array(buckets),
    mean: new Float64Array(buckets),
    low: new Float64Array(buckets),
    high: new Float64Array(buckets),
  };
  let used = 0;
  let i = lowerBound(x, from);
  const scale = to > from ? buckets / (to - from) : 0;
  while (i < x.length && x[i] <= to) {
    const bucket = Math.min(buckets - 1, Math.floor((x[i] - from) * scale));
    let count = 0,
      sumX = 0,
      sum = 0,
      low = Infinity,
      high = -Infinity;
    for (; i < x.length && x[i] <= to && Math.min(buckets - 1, Math.floor((x[i] - from) * scale)) === bucket; ++i) {
      const value = y[i];
      if (Number.isNaN(value)) continue;
      ++count;
      sumX += x[i];
      sum += value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (count === 0) continue;
    out.x[used] = sumX / count;
    out.mean[used] = sum / count;
    out.low[used] = low;
    out.high[used] = high;
    ++used;
  }
  return {
    x: out.x.subarray(0, used),
    mean: out.mean.subarray(0, used),
    low: out.low.subarray(0, used),
    high: out.high.subarray(0, used),
  };
}

// The first index whose value is not below `value`.
export function lowerBound(sorted: Float64Array, value: number): number {
  let low = 0,
    high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function nearestIndex(sorted: Float64Array, value: number): number {
  const after = lowerBound(sorted, value);
  if (after === 0) return 0;
  if (after === sorted.length) return sorted.length - 1;
  return value - sorted[after - 1] <= sorted[after] - value ? after - 1 : after;
}
