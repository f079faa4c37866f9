// Saying something to a run that is under way.

import { posting } from "./api.js";
import { form, h, labelled, put, trouble } from "./dom.js";
import { hears } from "./story.js";

/** Return its `element`, and `renew(run)`, for how the run stands and what its story says. */
export function steering(api, path, story) {
  const post = posting(api, `${path}/messages`);
  const words = h("textarea", { rows: 2, required: true });
  const button = h("button", {}, "Say it");
  const done = h("p", { class: "fine", role: "status" });
  const failed = h("div");
  const unheard = h("div");
  const say = async () => {
    button.disabled = true;
    put(done);
    put(failed);
    const content = words.value;
    try {
      await post({ content });
      if (words.value === content) words.value = "";
      put(unheard);
      put(done, "It was said, and is read at the model's next step.");
    } catch (error) {
      put(failed, trouble(error));
    }
    button.disabled = false;
  };
  const asked = form(say, { class: "stack steer", hidden: true },
    labelled("Say something to it", words), button);
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) asked.requestSubmit(button);
  });
  const renew = (run) => {
    const heard = hears(story, run);
    if (!heard && !asked.hidden) {
      put(done);
      if (words.value.trim()) put(unheard, lost(words.value));
    }
    asked.hidden = !heard;
  };
  return { element: h("div", {}, asked, done, failed, unheard), renew };
}

// Whoever was writing as the run ended still has the words.
function lost(words) {
  return [
    h("p", { role: "status" }, "The run stops, and has not heard this:"),
    h("pre", {}, words),
  ];
}
