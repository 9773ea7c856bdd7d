{{- define "tandem.fullname" -}}
{{- if contains "tandem" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-tandem" (.Release.Name | trunc 43 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "tandem.selector" -}}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tandem.labels" -}}
{{ include "tandem.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tandem.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "tandem.fullname" .) }}
{{- end }}

{{- define "tandem.adminPort" -}}
{{ .Values.config.admin.listen | splitList ":" | last }}
{{- end }}

{{- /* The configuration with the times of the end. */ -}}
{{- define "tandem.config" -}}
{{- $ends := dict "unready" (printf "%ds" (int .Values.shutdown.unreadySeconds)) "drain" (printf "%ds" (int .Values.shutdown.drainSeconds)) -}}
{{- range $name, $_ := $ends -}}
{{- if hasKey ($.Values.config.timeouts | default dict) $name -}}
{{- fail (printf "config.timeouts.%s: set shutdown.%sSeconds instead, which terminationGracePeriodSeconds follows" $name $name) -}}
{{- end -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "timeouts" (merge $ends ($config.timeouts | default dict)) -}}
{{- tpl (toYaml $config) . -}}
{{- end }}
