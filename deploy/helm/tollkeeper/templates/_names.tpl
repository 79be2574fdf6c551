{{/* The name of all objects: the release's, with the chart's if that is not part of it. */}}
{{- define "tollkeeper.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of all objects. The first is what selects the pods. */}}
{{- define "tollkeeper.labels" -}}
app.kubernetes.io/name: {{ include "tollkeeper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The configuration file: yours, or the example with the name of this release's Redis. */}}
{{- define "tollkeeper.config" -}}
{{- .Values.config | default (.Files.Get "files/rules.yaml" | replace "tollkeeper-redis" (printf "%s-redis" (include "tollkeeper.name" .))) -}}
{{- end -}}
