import type { Algorithm, ManualClock } from "./index.js";

export interface StoreOptions {
  /** `memory:` by default, or `redis://...`. */
  store?: string;
  /** The deadline of each call to Redis: seconds, or a string such as `20ms`. */
  timeout?: number | string;
  maxKeys?: number;
  namespace?: string;
  /** What keys begin with; `rl:` by default. */
  prefix?: string;
  /** `fixed_window` by default. */
  algorithm?: Exclude<Algorithm, "concurrency">;
  onStoreFailure?: "open" | "closed" | "local";
  lease?: number | string;
  clock?: ManualClock;
}

/** A store for express-rate-limit: `rateLimit({ limit: 100, store: new TollkeeperStore({ store: "redis://..." }) })`. */
export class TollkeeperStore {
  constructor(options?: StoreOptions);
  prefix: string;
  localKeys: boolean;
  init(options: any): void;
  get(key: string): Promise<{ totalHits: number; resetTime: Date | undefined } | undefined>;
  increment(key: string): Promise<{ totalHits: number; resetTime: Date | undefined }>;
  decrement(key: string): Promise<void>;
  resetKey(key: string): Promise<void>;
  shutdown(): Promise<void>;
}
