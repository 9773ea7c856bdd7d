// Command monitoring writes deploy/grafana/tandem.json, the dashboard for the metrics of docs/metrics.md.
//
//	go run ./tools/monitoring > deploy/grafana/tandem.json
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// write writes the dashboard to w.
func write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(dashboard())
}

// object is a JSON object.
type object map[string]any

// dashboard has all rows: four stats side by side in the first row, two plots in each other row.
func dashboard() object {
	var panels []object
	id, y := 1, 0
	for _, r := range rows {
		panels = append(panels, object{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{},
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1},
		})
		id++
		y++
		columns, height := 2, 8
		if _, stat := steps[r.panels[0].title]; stat {
			columns, height = 4, 4
		}
		for i, p := range r.panels {
			width := 24 / columns
			panels = append(panels, p.json(id, object{
				"x": width * (i % columns), "y": y + height*(i/columns), "w": width, "h": height,
			}))
			id++
		}
		y += height * ((len(r.panels) + columns - 1) / columns)
	}
	return object{
		"title": "Tandem", "uid": "tandem", "schemaVersion": 39, "version": 1, "editable": true, "refresh": "10s",
		"tags": []string{"tandem", "vllm"},
		"time": object{"from": "now-30m", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			variables[0].json(), variables[1].json(), variables[2].json(),
		}},
	}
}

// variable selects the shown series by a label. Queries use it as $name.
type variable struct{ name, label, metric string }

var variables = []variable{
	{"job", "Job", "tandem_requests_in_flight"},
	{"model", "Model", "tandem_requests_total"},
	{"replica", "Replica", "tandem_replica_up"},
}

func (v variable) json() object {
	return object{
		"name": v.name, "type": "query", "label": v.label, "datasource": source, "refresh": 2,
		"query": fmt.Sprintf("label_values(%s, %s)", v.metric, v.name), "includeAll": true, "multi": true,
		"allValue": ".*", "current": object{"text": "All", "value": "$__all"},
	}
}

var source = object{"type": "prometheus", "uid": "${datasource}"}

// json is the panel in Grafana's form, at a place of the grid: a stat if it has thresholds, else a plot.
func (p panel) json(id int, place object) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend,
		})
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.unit == "percentunit" {
		defaults["max"] = 1
	}
	kind, options := "timeseries", object{
		"legend":  object{"displayMode": "list", "placement": "bottom"},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	if at, stat := steps[p.title]; stat {
		defaults["thresholds"] = object{"mode": "absolute", "steps": at.json()}
		kind, options = "stat", object{
			"colorMode": "background", "graphMode": "area", "textMode": "value",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}},
		}
	}
	return object{
		"id": id, "type": kind, "title": p.title, "description": p.what, "datasource": source,
		"gridPos": place,
		"targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []any{}},
		"options": options,
	}
}

// json is the colours of a stat by its value.
func (t thresholds) json() []object {
	colours := [3]string{"green", "orange", "red"}
	if t.moreIsBetter {
		colours = [3]string{"red", "orange", "green"}
	}
	return []object{
		{"color": colours[0], "value": nil},
		{"color": colours[1], "value": t.first},
		{"color": colours[2], "value": t.second},
	}
}
