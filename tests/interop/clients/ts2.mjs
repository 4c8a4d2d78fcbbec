// The official TypeScript client, second generation, as it comes: the handshake of 2025-11-25.

import { main } from './checks.mjs';
import { sdk } from './ts2_sdk.mjs';

await main(sdk({}), '2025-11-25');
