// The watcher's clock. Ours may be wrong, and may be set while the page is open: it is asked for its pace only.

export class Clock {
  constructor() {
    this.set(Date.now() / 1000);
  }

  /** The watcher says that it is `t` now. */
  set(t) {
    this.t = t;
    this.at = performance.now();
  }

  now() {
    return this.t + (performance.now() - this.at) / 1000;
  }

  /** How far this browser's clock is ahead of the watcher's, in seconds. */
  ahead() {
    return Date.now() / 1000 - this.now();
  }
}
