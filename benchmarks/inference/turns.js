// SPDX-License-Identifier: BSD-3-Clause
// ONNX Runtime and a predictor in turns: turns.js BENCH_INFERENCE FOLDER TURNS SECONDS. See benchmarks/inference/run.
const fs = require('fs'), path = require('path'), {spawn} = require('child_process'), readline = require('readline');
const ort = require('onnxruntime-node');
const median = values => values.sort((a, b) => a - b)[values.length >> 1];
const numbers = file => { const bytes = fs.readFileSync(file); return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4); };

(async () => {
  const [program, folder] = process.argv.slice(2), turns = Number(process.argv[4]), seconds = Number(process.argv[5]);
  const child = spawn(program, [folder], {stdio: ['pipe', 'pipe', 'inherit']});
  child.on('exit', code => { if (code !== 0) { console.error(program + ' ended with ' + code); process.exit(1); } });
  const lines = readline.createInterface({input: child.stdout})[Symbol.asyncIterator]();
  const networks = [];
  for (let line; (line = (await lines.next()).value) !== 'ready';) networks.push(JSON.parse(line));
  let below = 0, wrong = 0;
  const only = new RegExp(process.env.ONLY || '');
  for (const {name, batches} of networks.filter(one => only.test(one.name))) {
    const at = path.join(folder, name);
    const session = await ort.InferenceSession.create(at + '.onnx', {intraOpNumThreads: 1, interOpNumThreads: 1, graphOptimizationLevel: 'all'});
    const sample = session.inputMetadata[0].shape.slice(1), size = sample.reduce((a, b) => a * b, 1);
    const run = async x => (await session.run({x: new ort.Tensor('float32', x, [x.length / size, ...sample])})).y.data;
    const y = await run(numbers(at + '.x')), expected = numbers(at + '.y');
    let error = y.length === expected.length ? 0 : Infinity, most = 0;
    for (let i = 0; i < expected.length; i++) { const off = Math.abs(y[i] - expected[i]); if (!(off <= error)) error = off; most = Math.max(most, Math.abs(expected[i])); }
    if (!(error / most <= 1e-5)) wrong++;
    for (const rows of batches) {
      const x = Float32Array.from({length: rows * size}, () => 2 * Math.random() - 1), other = [], own = [];
      const feeds = {x: new ort.Tensor('float32', x, [rows, ...sample])};
      await session.run(feeds);
      for (let turn = 0; turn < turns; turn++) {
        const times = [];
        for (const begin = performance.now(); times.length < 3 || (performance.now() - begin < 1e3 * seconds && times.length < 1e5);) {
          const start = performance.now();
          await session.run(feeds);
          times.push((performance.now() - start) / 1e3);
        }
        other.push(median(times));
        child.stdin.write(`${name} ${rows} ${seconds}\n`);
        own.push(Number((await lines.next()).value));
      }
      const ratio = median(other.map((t, i) => t / own[i]));
      if (ratio < 1) below++;
      console.log(JSON.stringify({bench: 'inference', network: name, rows, onnxruntime_samples_per_s: Math.round(rows / median(other)),
                                  lockstep_samples_per_s: Math.round(rows / median(own)), ratio: Number(ratio.toFixed(2)), turns,
                                  error_of_largest_output: Number((error / most).toExponential(1))}));
    }
    await session.release();
  }
  child.stdin.end();
  if (wrong > 0) { console.error(`${wrong} networks with other outputs`); process.exit(1); }
  if (below > 0) console.error(`${below} cases below 1`);
})().catch(error => { console.error(error.message); process.exit(1); });
