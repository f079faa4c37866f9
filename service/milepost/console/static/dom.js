// Elements. Whatever comes from a model, a tool or a person becomes text here, and never markup.

/** Return an element with these attributes, listeners (`onclick`) and children. */
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  put(element, ...children);
  return element;
}

/** Put these in the place of all that an element has. */
export function put(element, ...children) {
  const there = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  element.replaceChildren(...there.filter((child) => child !== false));
}

/** Have an element stay as high as it is, whatever goes out of it: nothing below moves up. */
export function hold(element) {
  element.style.minHeight = `${element.getBoundingClientRect().height}px`;
}

/** Return a control with its words. */
export function labelled(words, control) {
  return h("label", {}, h("span", {}, words), control);
}

/** Return a list to choose from; each option is a value, or a value and its words. */
export function choice(options, chosen, given = {}) {
  const each = options.map((option) => {
    const [value, words] = Array.isArray(option) ? option : [option, option];
    return h("option", { value, selected: value === chosen }, words);
  });
  return h("select", given, ...each);
}

/** Return a form that does what it is for here, and sends nothing by itself. */
export function form(onSubmit, given, ...children) {
  const submit = (event) => {
    event.preventDefault();
    onSubmit(event);
  };
  return h("form", { ...given, onsubmit: submit }, ...children);
}

/** Return the badge of a status. */
export function badge(status) {
  return h("span", { class: `badge ${status}` }, status);
}

/** Return a refusal as people can read it, and as they can tell others of it. */
export function trouble(error) {
  const { problem = {}, status = 0, requestId = null, message } = error;
  const words = status ? `${problem.title ?? "Refused"} (${status})` : "The server did not answer";
  const places = (problem.errors ?? []).map((each) =>
    h("li", {}, h("code", {}, each.pointer), ` ${each.detail}`));
  return h("div", { class: "trouble", role: "alert" },
    h("strong", {}, words),
    h("p", {}, message),
    places.length ? h("ul", {}, ...places) : null,
    h("p", { class: "fine" }, [problem.code, requestId].filter(Boolean).join(" · ")));
}
