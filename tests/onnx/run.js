// SPDX-License-Identifier: BSD-3-Clause
// Runs ONNX files with ONNX Runtime and compares: run.js FOLDER TOLERANCE (NAME.onnx, NAME.x, NAME.y). TOLERANCE is that of networks of floats;
// those of doubles have 1e-12.
const fs = require('fs'), path = require('path');
const ort = require('onnxruntime-node');
(async () => {
  const [folder, tolerance] = [process.argv[2], Number(process.argv[3])];
  const files = fs.readdirSync(folder).filter(name => name.endsWith('.onnx')).sort();
  if (files.length === 0) throw new Error(folder + ': no ONNX files');
  const numbers = (file, type) => {
    const bytes = fs.readFileSync(file), all = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    return type === 'float64' ? new Float64Array(all) : new Float32Array(all);
  };
  let failed = false;
  for (const file of files) {
    const name = path.basename(file, '.onnx'), at = path.join(folder, name);
    const session = await ort.InferenceSession.create(at + '.onnx', {intraOpNumThreads: 1, interOpNumThreads: 1});
    const about = session.inputMetadata[0], x = numbers(at + '.x', about.type), expected = numbers(at + '.y', about.type);
    const sample = about.shape.slice(1), size = sample.reduce((a, b) => a * b, 1);
    const y = (await session.run({[about.name]: new ort.Tensor(about.type, x, [x.length / size, ...sample])}))[session.outputNames[0]].data;
    if (y.length !== expected.length) throw new Error(`${name}: ${y.length} outputs, not ${expected.length}`);
    let error = 0, most = 0;
    for (let i = 0; i < y.length; i++) {
      error = Math.max(error, Math.abs(y[i] - expected[i]));
      most = Math.max(most, Math.abs(expected[i]));
    }
    console.log(`${name}: error ${(error / most).toExponential(1)} of the largest output`);
    if (!(error / most <= (about.type === 'float64' ? 1e-12 : tolerance))) failed = true;
  }
  if (failed) { console.error(`an error is above ${tolerance}, of doubles above 1e-12`); process.exit(1); }
})().catch(error => { console.error(error.message); process.exit(1); });
