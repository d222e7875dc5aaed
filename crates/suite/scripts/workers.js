// Workers of node: messages, shared memory with Atomics, the pool behind crypto and files, timers and commands.
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const { promisify } = require("util");
const crypto = require("crypto");
const fs = require("fs/promises");
const { execFile } = require("child_process");

if (!isMainThread) {
  const counts = new Int32Array(workerData.shared);
  let x = workerData.me + 1;
  for (let i = 0; i < 12000000; i++) x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
  for (let i = 0; i < 20000; i++) Atomics.add(counts, 0, 1);
  for (let turn = workerData.me; turn < 200; turn += 4) {
    for (let now; (now = Atomics.load(counts, 1)) !== turn; ) Atomics.wait(counts, 1, now, 50);
    Atomics.add(counts, 1, 1);
    Atomics.notify(counts, 1);
  }
  parentPort.on("message", (n) => {
    if (n < 0) return parentPort.close();
    parentPort.postMessage({ n, answer: (n * 31 + x) >>> 0 });
  });
} else {
  main();
}

function talk(worker) {
  return new Promise((resolve, reject) => {
    let sum = 0;
    worker.on("message", ({ n, answer }) => {
      sum = (sum + answer) >>> 0;
      worker.postMessage(n < 300 ? n + 1 : -1);
      if (n === 300) resolve(sum);
    });
    worker.on("error", reject);
    worker.postMessage(0);
  });
}

async function main() {
  const shared = new SharedArrayBuffer(8);
  const workers = [0, 1, 2, 3].map((me) => new Worker(__filename, { workerData: { me, shared } }));
  const ends = workers.map((w) => new Promise((resolve) => w.on("exit", resolve)));
  console.log(await Promise.all(workers.map(talk)), [...new Int32Array(shared)]);
  console.log(await Promise.all(ends));
  const derive = promisify(crypto.pbkdf2);
  const keys = await Promise.all([...Array(8).keys()].map((i) => derive(`word ${i}`, "salt", 60000, 16, "sha256")));
  console.log(keys.map((key) => key.toString("hex")).join("\n"));
  const names = [...Array(20).keys()].map((i) => `part-${i}`);
  await Promise.all(names.map((name, i) => fs.writeFile(name, name.repeat(1000 + i))));
  const parts = await Promise.all(names.map((name) => fs.readFile(name)));
  console.log(crypto.createHash("sha256").update(Buffer.concat(parts)).digest("hex"));
  const run = promisify(execFile);
  console.log(await Promise.all([1, 2, 3].map((n) => run("/bin/sh", ["-c", `echo ${n * n}`]).then((r) => r.stdout))));
  let ticks = 0;
  await new Promise((resolve) => {
    const timer = setInterval(() => ++ticks === 20 && (clearInterval(timer), resolve()), 3);
  });
  console.log("ticks", ticks);
}
