"use strict";
// Plotly is here: draw what was waiting for it.
redraw();
document.body.dataset.ready = "yes";
