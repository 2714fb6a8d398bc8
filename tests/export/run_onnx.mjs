// Runs an ONNX file in ONNX Runtime: run_onnx.mjs MODEL INPUTS OUTPUTS. Inputs and outputs are safetensors files, with the
// graph's names.
import { readFileSync, writeFileSync } from "node:fs";
import { InferenceSession, Tensor } from "onnxruntime-node";

const types = {
  F32: { name: "float32", array: Float32Array },
  I32: { name: "int32", array: Int32Array },
  I64: { name: "int64", array: BigInt64Array },
  BOOL: { name: "bool", array: Uint8Array },
};

function readTensors(path) {
  const file = readFileSync(path);
  const start = 8 + Number(file.readBigUInt64LE(0));
  const tensors = {};
  for (const [name, entry] of Object.entries(JSON.parse(file.toString("utf8", 8, start)))) {
    if (name === "__metadata__") continue;
    const type = types[entry.dtype];
    const [begin, end] = entry.data_offsets;
    const bytes = new Uint8Array(file.subarray(start + begin, start + end)); // a copy, which is aligned
    tensors[name] = new Tensor(type.name, new type.array(bytes.buffer), entry.shape);
  }
  return tensors;
}

function writeTensors(path, tensors) {
  const header = {};
  const parts = [];
  let end = 0;
  for (const [name, tensor] of Object.entries(tensors)) {
    const dtype = Object.keys(types).find((known) => types[known].name === tensor.type);
    if (!dtype) throw new Error(`output ${name} is ${tensor.type}`);
    const bytes = Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength);
    header[name] = { dtype, shape: tensor.dims, data_offsets: [end, end + bytes.length] };
    parts.push(bytes);
    end += bytes.length;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

const [model, inputs, outputs] = process.argv.slice(2);
const session = await InferenceSession.create(model, { intraOpNumThreads: 1 });
writeTensors(outputs, await session.run(readTensors(inputs)));
