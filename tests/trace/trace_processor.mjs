// Perfetto's trace processor, as its web page has it, without the page.
//
// Usage: node trace_processor.mjs FOLDER SOCKET
//
// FOLDER holds the page's engine_bundle.js and trace_processor.wasm, which are made for a web worker. Here they
// run in a context that has what a worker has and they need, and answer on the Unix socket SOCKET, one
// client at a time, the way `trace_processor server unix` does: TraceProcessorRpcStream both ways. Says
// "ready" on stdout, and ends with its stdin.
import {readFileSync} from 'node:fs';
import {createServer} from 'node:net';
import {join} from 'node:path';
import vm from 'node:vm';

const [folder, socket] = process.argv.slice(2);

class XMLHttpRequest {
  open(_method, url) {
    this.path = join(folder, url);
  }
  send() {
    const file = readFileSync(this.path);
    this.response = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
  }
}

const worker = {
  console: {log: console.error, warn: console.error, error: console.error},
  location: {href: 'http://127.0.0.1/'},
  performance,
  setTimeout,
  TextDecoder,
  TextEncoder,
  URL,
  WorkerGlobalScope: Object,
  XMLHttpRequest,
};
worker.self = worker;
vm.runInNewContext(
  // What node makes is of another context than the engine's own, and it asks.
  readFileSync(join(folder, 'engine_bundle.js'), 'utf8') + ';self.copied = bytes => new Uint8Array(bytes);',
  worker,
);

let client;
const port = {
  postMessage(bytes) {
    client?.write(Buffer.from(bytes));
  },
};
worker.onmessage({data: port});

const server = createServer(connection => {
  client = connection;
  connection.on('data', bytes => port.onmessage({data: worker.copied(bytes)}));
  connection.on('error', () => {});
});
// The engine is ready a turn or two of the loop later.
setTimeout(() => server.listen(socket, () => console.log('ready')), 100);
process.stdin.on('end', () => process.exit(0)).resume();
