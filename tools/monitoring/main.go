// Command monitoring writes deploy/grafana/tandem.json, the dashboard that goes with the metrics of
// docs/metrics.md.
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

// write brings the dashboard to w.
func write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(dashboard())
}

// object is a JSON object.
type object map[string]any

// dashboard has every row, its panels two beside each other.
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
		for i, p := range r.panels {
			panels = append(panels, p.json(id, 12*(i%2), y+8*(i/2)))
			id++
		}
		y += 8 * ((len(r.panels) + 1) / 2)
	}
	return object{
		"title": "Tandem", "uid": "tandem", "schemaVersion": 39, "version": 1, "editable": true, "refresh": "10s",
		"tags": []string{"tandem", "vllm"},
		"time": object{"from": "now-30m", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			{
				"name": "job", "type": "query", "label": "Job", "datasource": source, "refresh": 2,
				"query": "label_values(tandem_requests_in_flight, job)", "includeAll": true, "multi": true,
				"allValue": ".*", "current": object{"text": "All", "value": "$__all"},
			},
		}},
	}
}

var source = object{"type": "prometheus", "uid": "${datasource}"}

// json is the panel as Grafana has it, at a place of the grid.
func (p panel) json(id, x, y int) object {
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
	return object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.what, "datasource": source,
		"gridPos": object{"x": x, "y": y, "w": 12, "h": 8},
		"targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []any{}},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom"},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}
