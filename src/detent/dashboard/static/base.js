// Where the dashboard is: empty, or the path under which another application serves it.
export const BASE = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
