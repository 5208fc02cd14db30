// Asks Perfetto's trace processor: node trace_processor.mjs ENGINE_FOLDER TRACE < queries.json > rows.json
//
// ENGINE_FOLDER holds trace_processor.wasm with its worker (engine_bundle.node.js) and the decoder of its answers (engine.mjs),
// as .ci/trace-processor lays them down. Standard input is a list of SQL queries, the answer a list of rows for each.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const CHUNK_BYTES = 16 * 1024 * 1024; // a request of more than 64 MiB is refused

const [folder, trace] = process.argv.slice(2);
const file = (name) => join(resolve(folder), name);

/** Starts the worker in this thread and resolves to its end of the channel once it can be asked. */
async function startWorker() {
  Object.assign(globalThis, { self: globalThis, WorkerGlobalScope: function () {} });
  globalThis.location = { href: pathToFileURL(file("")).href };
  globalThis.XMLHttpRequest = class {
    open() {}
    send() {
      this.response = readFileSync(file("trace_processor.wasm"));
    }
  };
  const { Module, Instance } = WebAssembly;
  // Only the 32-bit program is at hand: let the probe for 64-bit memory, a module that begins with a memory, fail.
  WebAssembly.Module = function (bytes) {
    if (bytes[8] === 5) throw new Error("no 64-bit memory");
    return new Module(bytes);
  };
  const ready = new Promise((resolveReady) => {
    WebAssembly.Instance = function (module, imports) {
      const { exports } = new Instance(module, imports);
      const trace_processor_rpc_init = (...values) => {
        setImmediate(resolveReady);
        return exports.trace_processor_rpc_init(...values);
      };
      return { exports: { ...exports, trace_processor_rpc_init } };
    };
  });
  vm.runInThisContext(readFileSync(file("engine_bundle.node.js"), "utf8"));
  await ready;
  const channel = new MessageChannel();
  globalThis.onmessage({ data: channel.port1 });
  return channel.port2;
}

function cell(value) {
  return typeof value === "bigint" ? Number(value) : value;
}

console.log = console.warn = (...words) => process.stderr.write(`${words.join(" ")}\n`);
const { EngineBase } = await import(pathToFileURL(file("engine.mjs")).href);
const port = await startWorker();
const engine = new (class extends EngineBase {
  rpcSendRequestBytes(bytes) {
    port.postMessage(bytes);
  }
})();
port.onmessage = (message) => engine.onRpcResponseBytes(message.data);

const bytes = new Uint8Array(readFileSync(trace));
for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
  await engine.parse(bytes.subarray(start, start + CHUNK_BYTES));
}
await engine.notifyEof();
const answers = [];
for (const query of JSON.parse(readFileSync(0, "utf8"))) {
  const result = await engine.query(query);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(Object.fromEntries(result.columns().map((name) => [name, cell(row.get(name))])));
  }
  answers.push(rows);
}
process.stdout.write(JSON.stringify(answers), () => process.exit(0));
