// Registers the components that the page brings along.

import { confirmAction } from "./confirm_action.js";
import { displayChart } from "./display_chart.js";
import { form } from "./form.js";
import { register } from "./registry.js";

register("confirmAction", confirmAction);
register("displayChart", displayChart);
register("form", form);
