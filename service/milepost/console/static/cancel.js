// Stopping a run.

import { form, h, labelled, put, trouble } from "./dom.js";
import { isActive } from "./story.js";

/** Return its `element`, and `renew(run)`, for how the run stands. */
export function cancel(api, path) {
  const reason = h("input", { maxlength: 1000, autocomplete: "off" });
  const failed = h("div");
  const asked = h("button", {}, "Cancel the run");
  const stop = async () => {
    asked.disabled = true;
    try {
      await api.post(`${path}/cancel`, reason.value.trim() ? { reason: reason.value.trim() } : {});
      put(failed, h("p", { class: "fine", role: "status" }, "It was told to stop."));
    } catch (error) {
      asked.disabled = false;
      put(failed, trouble(error));
    }
  };
  const element = h("details", { class: "stop", hidden: true }, h("summary", {}, "Cancel …"),
    form(stop, { class: "filters" }, labelled("Reason", reason), asked), failed);
  const renew = (run) => {
    element.hidden = !isActive(run);
  };
  return { element, renew };
}
