"use strict";
(function () {
  const data = JSON.parse(document.getElementById("stages").textContent);
  const field = (id) => document.getElementById(id);
  const show = (id, text) => { if (field(id)) field(id).textContent = text; };

  // The same places as in the tables, commas between thousands.
  function rounded(value, places) {
    if (value === null) return "not known";
    if (Math.abs(value) >= 1e4) value = Number(value.toPrecision(4));
    const said = value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
    return /[1-9]/.test(said) ? said : said.replace("-", "");
  }
  function interval(low, high, places) {
    if (low === null || high === null) return "the tables cannot bound it";
    return rounded(low, places) + " to " + rounded(high, places);
  }
  function between(a, b, weight) {
    return a === null || b === null ? null : a + (b - a) * weight;
  }
  function stageAt(share) {
    const s = data.stages;
    let i = 1;
    while (i < s.length - 1 && s[i][0] < share) i += 1;
    const weight = Math.min(Math.max((share - s[i - 1][0]) / (s[i][0] - s[i - 1][0]), 0), 1);
    return [1, 2, 3].map((k) => between(s[i - 1][k], s[i][k], weight));
  }
  function place(value, ends) {
    return ends[2] + (value - ends[0]) / (ends[1] - ends[0]) * (ends[3] - ends[2]);
  }
  function money(value) {
    return (rounded(value, data.money_places) + " " + data.currency).trim();
  }
  // Paper has no folds: open them while printing. Charts stand for their numbers there.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])")).filter((each) => !each.closest("figure"));
    opened.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));

  // A link to a section opens it.
  function unfold() {
    const section = field(decodeURIComponent(location.hash.slice(1)));
    const fold = section && section.querySelector("details.fold");
    if (fold) fold.open = true;
  }
  window.addEventListener("hashchange", unfold);
  unfold();

  const range = field("share");
  if (!range) return;  // the tables cannot tell
  const inputs = { percent: 100, count: data.n, budget: data.n * data.cost };

  function update(share, from) {
    const people = share * data.n;
    let [gain, low, high] = stageAt(share);
    if (low === null || high === null) gain = null;
    range.value = 100 * share;
    range.setAttribute("aria-valuetext", (100 * share).toFixed(1) + " percent, gain " + rounded(gain, data.gain_places));
    for (const id in inputs) {
      if (id !== from && field(id)) field(id).value = +(share * inputs[id]).toFixed(id === "count" ? 0 : 2);
    }
    show("out-people", Math.round(people).toLocaleString("en-US"));
    show("out-cost", money(data.cost * people));
    show("out-gain", rounded(gain, data.gain_places));
    show("out-interval", interval(low, high, data.gain_places));
    show("out-share", String(+share.toFixed(4)));
    if (data.value !== null) {
      const net = (each) => each === null ? null : data.value * each - data.cost * people;
      show("out-net", gain === null ? rounded(null) : money(net(gain)));
      show("out-net-interval", interval(net(low), net(high), data.money_places));
    }
    const x = place(share, data.x), line = field("now-line"), point = field("now-point");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    point.setAttribute("cx", x);
    if (gain !== null) point.setAttribute("cy", place(gain, data.y));
  }
  range.addEventListener("input", () => update(range.value / 100, "share"));
  for (const id in inputs) {
    if (field(id)) field(id).addEventListener("input", () => {
      const share = parseFloat(field(id).value) / inputs[id];
      if (isFinite(share)) update(Math.min(Math.max(share, 0), 1), id);
    });
  }
  field("choose").addEventListener("submit", (event) => event.preventDefault());
  update(data.chosen, "");
})();
