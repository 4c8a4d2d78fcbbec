// The official TypeScript client, second generation, as it comes, in a web page: the handshake of 2025-11-25.

import { main } from './page.mjs';
import { sdk } from './ts2_sdk_page.mjs';

await main(sdk('ts2', {}));
