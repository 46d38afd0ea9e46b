{{/* Names, labels and values derived from `config`. No objects here. */}}

{{- define "millstream.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- /* 52, not 63: the StatefulSet's pods carry a revision hash of 11 characters as a label value. */ -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "millstream.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millstream.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "millstream.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "millstream.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "millstream.serviceAccountName" -}}
{{- default (ternary (include "millstream.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Port of an address of `config.server`: "0.0.0.0:8080" or "[::]:8080" gives 8080. */}}
{{- define "millstream.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{/* Seconds of a duration in whole seconds, minutes or hours; empty for any other form, which the process judges. */}}
{{- define "millstream.seconds" -}}
{{- $factors := dict "s" 1 "m" 60 "h" 3600 -}}
{{- if regexMatch "^[0-9]+[smh]$" . -}}
{{- mul (regexFind "^[0-9]+" . | int) (get $factors (regexFind "[smh]$" .)) -}}
{{- end -}}
{{- end -}}

{{/* The configuration file. */}}
{{- define "millstream.config" -}}
{{- toYaml .Values.config -}}
{{- end -}}
