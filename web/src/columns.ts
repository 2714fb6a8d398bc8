// Logged numbers as lowtide/report/metrics_encode.h packs them.

export interface Table {
  rows: number;
  columns: Map<string, Float64Array>;
}

// By split: `train`, `valid`, `test`; and `layers`.
export type Tables = Map<string, Table>;

interface ColumnHeader {
  name: string;
  encoding: "dictionary" | "f32" | "f64";
  values?: (number | null)[];
  differences?: number;
}

export interface Header {
  generation?: number;
  from?: number;
  end?: number;
  tables: { split: string; rows: number; columns: ColumnHeader[] }[];
}

async function gunzip(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Byte planes, lowest byte first, back to numbers of `width` bytes. (Every machine with a browser is little-endian.)
function join(planes: Uint8Array, rows: number, width: number): ArrayBuffer {
  const bytes = new Uint8Array(rows * width);
  for (let byte = 0; byte < width; ++byte) {
    const plane = byte * rows;
    for (let row = 0, at = byte; row < rows; ++row, at += width) bytes[at] = planes[plane + row];
  }
  return bytes.buffer;
}

function unzigzag32(words: Uint32Array) {
  for (let i = 0; i < words.length; ++i) words[i] = (words[i] >>> 1) ^ -(words[i] & 1);
}

function accumulate32(words: Uint32Array) {
  for (let i = 1; i < words.length; ++i) words[i] += words[i - 1];
}

// In halves of 32 bits: whole numbers of 64 bits are slow here.
function unzigzag64(words: Uint32Array) {
  for (let i = 0; i < words.length; i += 2) {
    const sign = -(words[i] & 1);
    words[i] = ((words[i] >>> 1) | (words[i + 1] << 31)) ^ sign;
    words[i + 1] = (words[i + 1] >>> 1) ^ sign;
  }
}

function accumulate64(words: Uint32Array) {
  let low = 0,
    high = 0;
  for (let i = 0; i < words.length; i += 2) {
    low += words[i];
    high += words[i + 1] + (low >= 2 ** 32 ? 1 : 0);
    words[i] = low >>>= 0;
    words[i + 1] = high >>>= 0;
  }
}

const widths = { dictionary: 2, f32: 4, f64: 8 };

function decodeColumn(header: ColumnHeader, planes: Uint8Array, rows: number): Float64Array {
  const data = join(planes, rows, widths[header.encoding]);
  switch (header.encoding) {
    case "dictionary": {
      const values = Float64Array.from(header.values!, (value) => value ?? NaN);
      const indices = new Uint16Array(data),
        out = new Float64Array(rows);
      for (let i = 0; i < rows; ++i) out[i] = values[indices[i]];
      return out;
    }
    case "f32": {
      const words = new Uint32Array(data);
      unzigzag32(words);
      for (let i = 0; i < header.differences!; ++i) accumulate32(words);
      return new Float64Array(new Float32Array(data));
    }
    case "f64": {
      const words = new Uint32Array(data);
      unzigzag64(words);
      for (let i = 0; i < header.differences!; ++i) accumulate64(words);
      return new Float64Array(data);
    }
  }
}

export async function decode(packed: Uint8Array<ArrayBuffer>): Promise<{ header: Header; tables: Tables }> {
  const bytes = await gunzip(packed);
  let at = bytes.indexOf(10);
  const header: Header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, at)));
  ++at;
  const tables: Tables = new Map();
  for (const { split, rows, columns } of header.tables) {
    const table: Table = { rows, columns: new Map() };
    for (const column of columns) {
      const end = at + rows * widths[column.encoding];
      table.columns.set(column.name, decodeColumn(column, bytes.subarray(at, end), rows));
      at = end;
    }
    tables.set(split, table);
  }
  return { header, tables };
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function appendTable(before: Table, after: Table): Table {
  const rows = before.rows + after.rows;
  const columns = new Map<string, Float64Array>();
  for (const name of new Set([...before.columns.keys(), ...after.columns.keys()])) {
    const column = new Float64Array(rows).fill(NaN);
    column.set(before.columns.get(name) ?? [], 0);
    column.set(after.columns.get(name) ?? [], before.rows);
    columns.set(name, column);
  }
  return { rows, columns };
}

export function append(before: Tables, after: Tables): Tables {
  const joined = new Map(before);
  for (const [split, table] of after) {
    const old = before.get(split);
    joined.set(split, old ? appendTable(old, table) : table);
  }
  return joined;
}
