// A server of gRPC for the JavaScript agents: the service is that of their SDK.

import { promisify } from 'node:util';
import { Server, ServerCredentials } from '@grpc/grpc-js';

/** Opens a server on a free port, without TLS. Services can be added to it then. */
export async function openGrpc() {
  const server = new Server();
  const bind = promisify(server.bindAsync.bind(server));
  const port = await bind('127.0.0.1:0', ServerCredentials.createInsecure());
  return { server, address: `127.0.0.1:${port}` };
}
