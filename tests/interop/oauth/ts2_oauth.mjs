// The official TypeScript client, second generation, on its way to a token: the handshake of 2025-11-25.

import { main } from './oauth.mjs';
import { sdk } from './ts2_oauth_sdk.mjs';

await main(sdk({}));
