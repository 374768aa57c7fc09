// Reads keyboard and gamepad, sends their state when it changes, and shows what the server sends.
"use strict";

const MOVING = new Set(
  ["W", "S", "A", "D", "E", "Q", "I", "K", "J", "L", "O", "U"].map((letter) => `Key${letter}`),
);
const OTHERS = new Set(["ShiftLeft", "ShiftRight", "Enter", "Backspace", "KeyT"]);
const REPEAT_MS = 200; // the server believes a silent page for a second
const RECONNECT_MS = 1000;

const element = (id) => document.getElementById(id);

// --- What the devices say --------------------------------------------------------------------

const pressed = new Set();
let socket = null;
let said = "";
let saidAt = 0;

function gamepadState() {
  const pad = navigator.getGamepads().find((each) => each && each.connected);
  if (!pad) return null;
  const finite = (number) => (Number.isFinite(number) ? number : 0);
  return {
    axes: pad.axes.slice(0, 8).map(finite),
    buttons: pad.buttons.slice(0, 20).map((button) => finite(button.value)),
  };
}

function say(clicked = null) {
  const gamepad = gamepadState();
  element("gamepad").textContent = gamepad ? "A gamepad is connected." : "";
  const state = JSON.stringify({
    type: "controls",
    keys: [...pressed].sort(),
    gamepad,
    frame: document.querySelector("input[name=frame]:checked").value,
    clicked,
  });
  const due = performance.now() - saidAt >= REPEAT_MS;
  if (socket?.readyState === WebSocket.OPEN && (state !== said || due)) {
    socket.send(state);
    [said, saidAt] = [state, performance.now()];
  }
}

function poll() {
  say();
  requestAnimationFrame(poll);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.code === "KeyF" && !event.repeat) {
    document.querySelector("input[name=frame]:not(:checked)").checked = true;
  } else if (MOVING.has(event.code) || OTHERS.has(event.code)) {
    pressed.add(event.code);
    event.preventDefault();
  } else return;
  say();
});

addEventListener("keyup", (event) => {
  if (pressed.delete(event.code)) say();
});

addEventListener("blur", () => {
  pressed.clear(); // their release would be missed
  say();
  // A click on the scene takes the focus, and the keys with it.
  setTimeout(() => document.activeElement === element("scene") && window.focus(), 0);
});

for (const button of document.querySelectorAll("[data-request]")) {
  button.addEventListener("click", () => {
    button.blur();
    say(button.dataset.request);
    say();
  });
}

for (const input of document.querySelectorAll("input[name=frame]")) {
  input.addEventListener("change", () => input.blur());
}

// --- What the server shows -------------------------------------------------------------------

const ENDED = {
  success: "Success",
  time_limit: "The time is over",
  object_lost: "The object is lost",
  simulation_error: "The simulator failed",
  policy_error: "Ended by you, without success",
  worker_error: "An error",
};

function phaseText(status) {
  switch (status.phase) {
    case "ready": return "Move to begin";
    case "running": return "Running: Enter ends the episode";
    case "paused": return "Paused";
    case "verifying": return "Running it again";
    case "saving": return "Saving";
    case "unsaved": return `Not saved: ${status.error}. Make room, and save again.`;
    case "complete": return "The dataset is complete";
    case "ended": return `${ENDED[status.outcome] ?? status.outcome}: save, discard or retry?`;
  }
  return "";
}

function number(value, unit) {
  return value === null || value === undefined ? "unknown" : `${value.toFixed(1)} ${unit}`;
}

function showStatus(status) {
  element("task").textContent = status.task ?? "";
  element("description").textContent = status.description ?? "";
  const { tool = "", object = "", attempt = 0, seed = "" } = status;
  element("scene-name").textContent =
    `attempt ${attempt}: ${tool?.split("/").pop()}, ${object?.split("/").pop()} (seed ${seed})`;
  const goal = status.requested === null ? "" : ` of ${status.requested}`;
  element("counts").textContent =
    `${status.successes ?? 0}${goal} successes, ${status.stored ?? 0} saved, ` +
    `${status.discarded ?? 0} discarded`;

  const phase = element("phase");
  phase.textContent = phaseText(status);
  phase.className = status.phase === "ended"
    ? (status.outcome === "success" ? "success" : "failure")
    : status.phase === "unsaved" ? "failure" : status.phase ?? "";
  phase.title = status.error ?? "";

  const seconds = (steps) => (steps / status.rate_hz).toFixed(1);
  const factor = status.real_time_factor;
  const slow = factor !== null && factor < 0.9 ? `, ${factor.toFixed(2)} of real time` : "";
  element("time").textContent = `${seconds(status.step)} of ${seconds(status.steps)} s${slow}`;
  element("time-bar").value = status.step / status.steps;
  showVerdicts(status.verdicts ?? [], status.demands ?? []);
  element("tool-force").textContent = number(status.tool_force_N, "N");
  element("tool-moment").textContent = number(status.tool_moment_Nm, "N m");
  element("hand-force").textContent = number(status.hand_force_N, "N");

  const acts = status.phase === "ended" || status.phase === "running" || status.phase === "paused";
  const saves = status.phase === "ended" || status.phase === "unsaved";
  element("save").disabled = !(acts || saves);
  element("save").firstChild.textContent = saves ? "Save " : "End ";
  element("retry").disabled = !acts;
  element("discard").disabled = !(acts || status.phase === "ready");
}

function showVerdicts(verdicts, demands) {
  element("verdicts").replaceChildren(...verdicts.map((verdict, k) => {
    const item = document.createElement("li");
    const mark = document.createElement("span");
    mark.textContent = verdict.holds ? "\u2713" : "\u00b7";
    const name = document.createElement("span");
    name.textContent = demands[k] ?? verdict.name;
    name.title = verdict.name;
    const bar = document.createElement("meter");
    bar.value = verdict.progress ?? 0;
    item.classList.toggle("holds", verdict.holds);
    item.append(mark, name, bar);
    return item;
  }));
}

function showImages({ images = {}, error = null }) {
  const cameras = element("cameras");
  if (error !== null) {
    const note = document.createElement("p");
    note.textContent = `No camera images: ${error}`;
    cameras.replaceChildren(note);
  }
  for (const [name, jpeg] of Object.entries(images)) {
    let image = cameras.querySelector(`img[alt="${CSS.escape(name)}"]`);
    if (!image) {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      image = document.createElement("img");
      image.alt = caption.textContent = name;
      figure.append(image, caption);
      cameras.append(figure);
    }
    image.src = `data:image/jpeg;base64,${jpeg}`;
  }
}

function showScene({ port, path }) {
  const address = `http://${location.hostname}:${port}${path}?hideViserLogo`;
  if (element("scene").src !== address) element("scene").src = address;
}

const SHOW = { scene: showScene, status: showStatus, images: showImages };

function connect() {
  socket = new WebSocket(`ws://${location.host}${location.pathname}socket`);
  socket.onopen = () => { said = ""; say(); };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    SHOW[message.type]?.(message);
  };
  socket.onclose = () => {
    if (element("phase").className === "complete") return;
    element("phase").textContent = "Disconnected";
    element("phase").className = "failure";
    setTimeout(connect, RECONNECT_MS);
  };
}

connect();
poll();
