// Channels to the gateway for the official JavaScript clients over gRPC: the headers of the other bindings are metadata.

import { InterceptingCall } from '@grpc/grpc-js';

function withHeaders(headers) {
  return (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start(metadata, listener, next) {
        for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
        next(metadata, listener);
      },
    });
}

/**
 * A factory of transports by gRPC, made of that of an SDK.
 *
 * The names of hosts that a gateway gives its agents are resolved nowhere here: they become the authority of requests
 * to `base`, the gateway's own address.
 */
export function grpcTransports(Factory, headers, base) {
  return {
    protocolName: 'GRPC',
    create(url, card) {
      const address = url.split('://').at(-1).replace(/\/$/, '');
      const isNamed = !address.startsWith('127.');
      const grpcCallOptions = { interceptors: [withHeaders(headers)], ...(isNamed && { host: address }) };
      return new Factory({ grpcCallOptions }).create(isNamed ? new URL(base).host : address, card);
    },
  };
}
